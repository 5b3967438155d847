"""The care of a database as a whole: made, upgraded, checked, backed up, restored.

Others use `databases.database_of` and the `upkeep.Upkeep` that it returns; `checks.UnfitDatabase`;
`backup.copy`; `restoring`; `scratch.folder`; and `instance` for the instance folder and its lock.
"""
