"""A year of a shop in minutes: what it has at the end is what its customers were told."""
