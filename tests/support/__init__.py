"""Servers, browsers and clients that tests, proofs and measurements start."""
