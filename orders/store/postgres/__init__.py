"""PostgreSQL in the place of SQLite, and the way there. Loaded only where it is set.

Others use `PostgresDatabase` and `PostgresUpkeep`, as those of SQLite; the command, `copying.copy`.
"""
