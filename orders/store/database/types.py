"""Instants as each database stores them and as the API's text; texts folded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, TypeDecorator
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from orders import domain
from orders.store.database.errors import bad_rows_mean_corruption

# As a text, after each that stands for an instant.
_AFTER_ALL_TEXT = "~"


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC with milliseconds; finer digits are cut.

    SQLite has no such type and would silently drop the time zone. There it is stored as the API's
    text (`2026-12-01T08:00:00.000Z`), which sorts by time and goes into JSON as it is. PostgreSQL
    has one, which users of psql expect; formatting it takes half as long again as the rest of an
    order's JSON.
    """

    impl = String(24)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's type for this database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(24))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Convert a datetime to the stored value."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return _AFTER_ALL_TEXT if value == domain.AFTER_ALL else domain.format_instant(value)
        if value == domain.AFTER_ALL:
            return value
        return value.replace(microsecond=value.microsecond // 1_000 * 1_000)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:
        """Convert the stored value to a datetime."""
        return instant_of(value)


class InstantText(FunctionElement[str]):
    """An instant as the API's text."""

    type = String()
    inherit_cache = True


@compiles(InstantText, "sqlite")
def _stored_as_text(element: InstantText, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(InstantText, "postgresql")
def _formatted(element: InstantText, compiler: SQLCompiler, **options: Any) -> str:
    instant = compiler.process(element.clauses, **options)
    # The connection's time zone is UTC.
    return f"""to_char({instant}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""


class Folded(FunctionElement[str]):
    """A text with its ASCII letters in lower case, compared by its characters' numbers."""

    type = String()
    inherit_cache = True


@compiles(Folded)
def _folded(element: Folded, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.clauses, **options)} COLLATE NOCASE"


@compiles(Folded, "postgresql")
def _folded_alike_everywhere(element: Folded, compiler: SQLCompiler, **options: Any) -> str:
    return f'lower({compiler.process(element.clauses, **options)} COLLATE "C")'


def instant_of(value: object) -> datetime | None:
    """Return the datetime of a driver's value."""
    if isinstance(value, str):
        with bad_rows_mean_corruption():
            return datetime.fromisoformat(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else None
