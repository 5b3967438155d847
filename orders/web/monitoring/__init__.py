"""What operators see: `health` is probes and a status file, `metrics` is for Prometheus."""
