"""A year of a shop in minutes: its data at the end agrees with its customers' answers."""
