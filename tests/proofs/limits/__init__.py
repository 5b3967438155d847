"""Limits that hold: exact among many clients, and with a million addresses."""
