"""The edge of the server: crowds that hold connections, slow readers, a stop under load."""
