"""One file for each change of the schema since version 1.0.0."""
