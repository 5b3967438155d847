"""How fast the service is, against its peers: the parts of `python -m tests.bench`."""
