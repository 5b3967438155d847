"""Measurements: each a command, `python -m tests.bench` and `python -m tests.bench.NAME --help`."""
