"""HTTP: identifying callers, reading requests, writing responses.

The application uses `api` (OrdersFlask, Api), `access.counters_of`, the blueprints of `v1` and
`v2`, `monitoring` and `pages`; the start also `api.ServingPolicy` and `logs`; `flask status` reads
what `monitoring.health` wrote.
"""
