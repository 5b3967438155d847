"""The dashboard in deploy/, with the data of a real run."""
