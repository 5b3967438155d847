"""One file for each change of the schema; the first makes it."""
