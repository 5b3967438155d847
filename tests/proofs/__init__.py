"""Long proofs: kills, power cuts, attacks, a year. Run `python -m tests.proofs.NAME`."""
