"""Measurements: each a command, `python -m bench` and `python -m bench.NAME --help`."""
