"""Fields that take what the contract allows and nothing that only looks like it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import marshmallow as ma

from orders import domain


class Whole(ma.fields.Field[int]):
    """A JSON integer between two bounds. Texts, floats (1.0, too), booleans, null are refused."""

    def __init__(self, least: int, most: int, **kwargs: Any) -> None:
        """Take the smallest and the largest number allowed."""
        super().__init__(validate=ma.validate.Range(min=least, max=most), **kwargs)
        self._refused = f"must be a whole number from {least} to {most}"

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> int:
        if type(value) is not int:
            raise ma.ValidationError(self._refused)
        return value

    def _validate(self, value: Any) -> None:
        try:
            super()._validate(value)
        except ma.ValidationError:
            raise ma.ValidationError(self._refused) from None


class Int64(Whole):
    """A whole number that fits in 64 bits, with a sign."""


class Instant(ma.fields.Field[datetime]):
    """An RFC 3339 date-time with a time zone; given in UTC with milliseconds."""

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> datetime:
        try:
            return domain.parse_instant(value)
        except (ValueError, TypeError):
            raise ma.ValidationError(
                "must be an RFC 3339 date-time with a time zone, such as "
                "2026-12-01T08:00:00Z, of the years 1 to 9999 in UTC"
            ) from None

    def _serialize(
        self, value: datetime | None, attr: str | None, obj: Any, **kwargs: Any
    ) -> str | None:
        return None if value is None else domain.format_instant(value)
