"""What the service is measured against: each a small program, as its documentation shows it."""
