"""The shop's tables, and their queries."""
