"""The HTTP server: waitress, with deadlines, strict parsing and a clean stop."""
