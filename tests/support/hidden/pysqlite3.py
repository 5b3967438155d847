"""Not to be found, so that the next driver is taken: `pytest --sqlite=sqlcipher3`."""

raise ImportError
