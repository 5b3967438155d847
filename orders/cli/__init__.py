"""The flask commands, a file for each group."""
