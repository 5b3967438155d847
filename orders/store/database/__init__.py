"""The interface of a database: connections, transactions, compiled queries, errors; and SQLite."""
