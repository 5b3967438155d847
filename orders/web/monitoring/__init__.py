"""What operators see of the service: probes and metrics."""
