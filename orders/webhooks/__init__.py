"""Webhooks: the event log's changes, sent to the endpoints that want them, signed and in order."""
