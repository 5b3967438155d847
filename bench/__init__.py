"""Measurements and long proofs: each a command, run as `python -m bench.NAME --help`."""
