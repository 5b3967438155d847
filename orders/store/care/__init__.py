"""The care of a database: opening, upgrading, checking, backing up, restoring."""
