"""The soak: minutes of mixed load, in which nothing may grow."""
