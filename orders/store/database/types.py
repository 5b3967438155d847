"""Instants as each database keeps them, and as texts of the API."""

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


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC with milliseconds; what is finer is cut.

    SQLite has no such type and would drop the time zone without a word. There it is kept as the
    text of the API (`2026-12-01T08:00:00.000Z`), which sorts by time and goes into JSON as it is.
    PostgreSQL has one, which whoever looks at the tables expects: making text of it takes half as
    long again as the rest of an order's JSON.
    """

    impl = String(24)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column's type for this database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(24))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Turn a datetime into what the database keeps."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return domain.format_instant(value)
        return value.replace(microsecond=value.microsecond // 1_000 * 1_000)

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:
        """Turn what the database keeps into a datetime."""
        return instant_of(value)


class InstantText(FunctionElement[str]):
    """An instant as the text of the API."""

    type = String()
    inherit_cache = True


@compiles(InstantText, "sqlite")
def _as_it_is_kept(element: InstantText, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(InstantText, "postgresql")
def _as_it_is_told(element: InstantText, compiler: SQLCompiler, **options: Any) -> str:
    instant = compiler.process(element.clauses, **options)
    # The connection's time zone is UTC.
    return f"""to_char({instant}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""


def instant_of(value: object) -> datetime | None:
    """Return the datetime that a driver's value stands for."""
    if isinstance(value, str):
        with bad_rows_mean_corruption():
            return datetime.fromisoformat(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else None
