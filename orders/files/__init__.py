"""Orders and pets as CSV and JSON Lines files, imported and exported.

The commands use `formats`, `rows` and `exporting`; the service's imports use `rows` and
`staging`.
"""
