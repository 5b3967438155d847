"""Long proofs: kills, power cuts, several processes, crowds, soaks. Run `python -m proofs.NAME`."""
