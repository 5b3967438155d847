"""The care of a database as a whole: made, upgraded, checked, backed up, restored.

Others use `upkeep`; `checks.UnfitDatabase`;
`backup.copy`; `restoring`; `scratch.folder`; and `instance` for the instance folder and its lock.
"""
