"""PostgreSQL in the place of SQLite, and the way there. Loaded only where it is set."""
