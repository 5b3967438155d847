"""JSON in and out, checked and documented by marshmallow. No Flask, no database."""
