"""A database: connections, transactions, compiled queries, what its errors mean; and SQLite.

Others use `database` (Database, Query and types of columns), `errors` (StoreUnavailable), and
`commits` (GroupCommit, CommitCache); who opens the database, or a file beside it, also `sqlite`.
"""
