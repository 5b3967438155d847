"""The database. Nothing outside of this package knows SQL."""
