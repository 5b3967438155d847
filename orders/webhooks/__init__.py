"""Webhooks: the events of the event log, delivered to endpoints, signed and in order.

Others use `endpoints` and `deliveries` (what is configured, due and done), `messages`, `addresses`
and `rules` (for the commands and the OpenAPI document), and `outbox.Outbox`, which delivers in the
background. `courier` and `claims` are its own parts.
"""
