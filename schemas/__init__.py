"""What goes in and out as JSON, checked and documented by marshmallow. No Flask, no database."""
