"""What the proofs share: clients, the history of what they did, checks of it, a command line."""
