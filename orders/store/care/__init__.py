"""The care of a database as a whole: made, upgraded, checked, backed up, restored.

Others use `upkeep`; `checks.UnfitDatabase`; `backup.copy`; `backups`, which the service makes by
itself; `restoring`; `scratch.folder`; `triggers`, which an import does without for a while; and
`instance` for the instance folder and its lock.
"""
