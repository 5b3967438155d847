"""The edge of the server: clients that hold the door, slow readers, a stop under load."""
