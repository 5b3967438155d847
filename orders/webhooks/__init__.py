"""Webhooks: the events of the event log, delivered to endpoints, signed and in order.

Others use `endpoints` and `deliveries` (configured, due and done) and `outbox.Outbox`, the delivery
in the background; the commands and the OpenAPI document also `sender` and `addresses`.
"""
