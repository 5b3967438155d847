"""Limits that hold: exact under load, across stops and kills, and with a million addresses."""
