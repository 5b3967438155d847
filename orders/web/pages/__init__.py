"""The pages for people, the console and /docs: their files, and what serves them."""
