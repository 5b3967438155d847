"""Long proofs: kills, power cuts, crowds, soaks. Run `python -m tests.proofs.NAME`."""
