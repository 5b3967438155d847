"""Orders and pets as CSV and JSON Lines: formats, what a row must be, staging, in and out."""
