"""The care of a database as a whole: made, upgraded, checked, backed up, restored, salvaged.

Others use `opening.SqliteUpkeep`, its locks and `copy`; `checks.UnfitDatabase`; `backups`, which
the service makes by itself; and `files` for the instance folder's lock and scratch folders.
`restoring` and `salvage` are the commands'.
"""
