"""Shared parts of the proofs: clients, their history, checks of it, a command line."""
