"""The crash harness: the service is killed under load, and its data compared with its answers."""
