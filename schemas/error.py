"""The one shape of every response of 400 and above."""

from __future__ import annotations

import marshmallow as ma


class ErrorSchema(ma.Schema):
    """An error: a code for programs, a message for people, the HTTP status."""

    code = ma.fields.String(required=True, metadata={"description": "Machine-readable error code."})
    message = ma.fields.String(
        required=True, metadata={"description": "Human-readable description of the error."}
    )
    status = ma.fields.Integer(required=True, metadata={"description": "The HTTP status code."})
