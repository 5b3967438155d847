"""For operators: `health` has probes and a status file, `metrics` is for Prometheus."""
