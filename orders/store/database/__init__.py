"""A database as a thing: connections, transactions, compiled queries, errors; and SQLite."""
