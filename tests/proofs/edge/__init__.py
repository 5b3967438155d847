"""The edge of the server: clients that hog connections, slow readers, a stop under load."""
