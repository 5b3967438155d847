"""The crash harness: the service is killed under load, and compared with what it said."""
