"""Instants and ids in the API: RFC 3339 in UTC with milliseconds; canonical decimals."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from orders.domain import (
    MAX_INT64,
    format_instant,
    normalize_instant,
    parse_bound,
    parse_id,
    parse_instant,
)
from tests.support.orders import ANY

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC, microsecond=999_000)
A_MILLISECOND = timedelta(milliseconds=1)

in_utc = st.datetimes(timezones=st.just(UTC))
zones = st.integers(-(23 * 60 + 59), 23 * 60 + 59).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)


@pytest.fixture
def far_from_utc(monkeypatch):
    """Put this machine into a time zone far from UTC."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "FAR-13:30")
        time.tzset()
        yield
    time.tzset()


@given(instant=in_utc, zone=zones)
@example(FIRST, UTC)
@example(LAST, UTC)
def test_an_instant_is_formatted_in_utc_with_milliseconds_and_parsed_back(instant, zone):
    written = format_instant(instant)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", written, re.ASCII)
    parsed = parse_instant(written)
    assert timedelta(0) <= instant - parsed < A_MILLISECOND
    assert parsed.utcoffset() == timedelta(0)
    assert normalize_instant(written) == written
    assume(timedelta(days=1) < instant - FIRST < LAST - FIRST - timedelta(days=1))
    assert format_instant(instant.astimezone(zone)) == written


@given(st.lists(in_utc))
def test_formatted_instants_sort_by_time(instants):
    assert sorted(map(format_instant, instants)) == list(map(format_instant, sorted(instants)))


@given(
    st.datetimes(FIRST.replace(day=2, tzinfo=None), timezones=st.just(UTC)),
    st.timedeltas(-2 * A_MILLISECOND, 2 * A_MILLISECOND),
    st.sampled_from(["", "0", "001", "9999"]),
)
@example(LAST, timedelta(0), "1")
def test_a_bound_lies_between_the_same_stored_instants_as_written(stored, further, finer):
    stored = parse_instant(format_instant(stored))
    instant = min(stored, LAST - 2 * A_MILLISECOND) + further
    written = instant.replace(tzinfo=None).isoformat(timespec="microseconds") + finer
    bound = parse_bound(f"{written}Z")
    # With finer digits than a datetime has, it comes after that.
    assert (stored < bound) == ((stored, False) < (instant, bool(finer.strip("0"))))
    assert bound.microsecond % 1000 == 0


def test_a_bound_after_the_last_instant_becomes_none():
    assert parse_bound("9999-12-31T23:59:59.999000Z") == LAST
    with pytest.raises(ValueError, match="9999"):
        parse_bound("9999-12-31T23:59:59.9990001-00:01")
    assert parse_bound("9999-12-31T23:59:59.9990001Z") > LAST


def test_the_time_zone_of_the_machine_does_not_matter(far_from_utc):
    instant = parse_instant("2026-12-01T08:00:00Z")
    assert instant.utcoffset() == timedelta(0)
    assert format_instant(instant) == "2026-12-01T08:00:00.000Z"


@st.composite
def spelled(draw):
    """Draw a date-time in any of RFC 3339's spellings, and the instant that it means."""
    local = draw(st.datetimes()).replace(microsecond=0)
    digits = draw(st.text("0123456789", max_size=12))
    millis = int(digits[:3].ljust(3, "0"))
    zone = draw(st.sampled_from(["Z", "z", "+00:00", "-00:00"]) | zones)
    text = local.isoformat().replace("T", draw(st.sampled_from("Tt")))
    fraction = f".{digits}" if digits else ""
    if isinstance(zone, str):
        shown, offset = zone, timedelta(0)
    else:
        offset = zone.utcoffset(None)
        hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
        shown = f"{'-' if offset < timedelta(0) else '+'}{hours:02}:{minutes:02}"
    try:
        meant = (local.replace(tzinfo=UTC) - offset) + timedelta(milliseconds=millis)
    except OverflowError:
        meant = None
    return text + fraction + shown, meant


@given(spelled())
@example(("0001-01-01T00:00:00+00:01", None))
@example(("9999-12-31T23:59:59-00:01", None))
def test_every_spelling_of_an_instant_is_parsed(spelling):
    text, meant = spelling
    if meant is None:
        with pytest.raises(ValueError, match="years 1 to 9999"):
            parse_instant(text)
    else:
        assert parse_instant(text) == meant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00.000Z"),
        ("2026-12-01T00:30:00+05:45", "2026-11-30T18:45:00.000Z"),
        ("2026-12-01T08:00:00-00:00", "2026-12-01T08:00:00.000Z"),
        ("2026-12-01T08:00:00.5Z", "2026-12-01T08:00:00.500Z"),
        ("2026-12-01T08:00:00.0009999Z", "2026-12-01T08:00:00.000Z"),
        ("2026-12-01T08:00:00." + "9" * 5_000 + "Z", "2026-12-01T08:00:00.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("0001-01-01T00:00:00-00:01", "0001-01-01T00:01:00.000Z"),
        ("0000-12-31T23:59:00-00:01", "0001-01-01T00:00:00.000Z"),
        ("0000-12-31T00:01:00.5-23:59", "0001-01-01T00:00:00.500Z"),
        ("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.999Z"),
        ("9999-12-31T23:59:59+23:59", "9999-12-31T00:00:59.000Z"),
    ],
)
def test_an_instant_is_normalized(text, instant):
    assert format_instant(parse_instant(text)) == instant
    assert normalize_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1796112000",
        "2026-12-01",
        "08:00:00Z",
        "2026-12-01T08:00:00",
        "2026-12-01T08:00Z",
        "2026-12-01T08:00:00.Z",
        "2026-12-01T08:00:00ZZ",
        "2026-12-01 08:00:00Z",
        "2026-12-01T08:00:00 02:00",
        "2026-12-01T08:00:00,5Z",
        "20261201T080000Z",
        "2026-W49-2T08:00:00Z",
        "2026-335T08:00:00Z",
        "+2026-12-01T08:00:00Z",
        "26-12-01T08:00:00Z",
        "2026-12-01T08:00:00+02",
        "2026-12-01T08:00:00+0200",
        "2026-12-01T08:00:00+02:00:00",
        "2026-12-01T08:00:00\u221202:00",
        "2026-12-01T24:00:00Z",
        "2026-13-01T08:00:00Z",
        "2026-02-29T08:00:00Z",
        "2026-02-29T08:00:00.000Z",
        "2100-02-29T08:00:00Z",
        "2026-12-01T08:60:00Z",
        "2016-12-31T23:59:60Z",
        "2026-12-01T08:00:00+24:00",
        "2026-12-01T08:00:00+02:60",
        "\u0662\u0660\u0662\u0666-12-01T08:00:00Z",
        "2026-12-01T08:00:00.\u0665Z",
        "\uff12026-12-01T08:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "0000-12-31T23:58:59-00:01",
        "0000-12-31T23:59:59Z",
        "0000-12-30T23:59:59-23:59",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:59.9999-00:01",
        " 2026-12-01T08:00:00Z",
        "2026-12-01T08:00:00Z\n",
    ],
)
def test_anything_else_is_rejected(text):
    for read in (parse_instant, normalize_instant):
        with pytest.raises(ValueError, match=r"."):
            read(text)


@given(st.from_regex(r"\A\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\dZ\Z", alphabet=ANY))
def test_only_dates_of_the_calendar_are_parsed(text):
    try:
        expected = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        is_instant = text.isascii() and text[17] < "6"
    except ValueError:
        is_instant = False
    if is_instant:
        assert parse_instant(text) == expected
    else:
        with pytest.raises(ValueError, match=r"."):
            parse_instant(text)


@example("1")
@example(str(MAX_INT64))
@example(str(MAX_INT64 + 1))
@example("1" + "0" * 4_000)
@given(st.text(ANY) | st.from_regex(r"\A\s?[+-]?0?\d{1,20}(\.0|e0|_1)?\s?\Z", alphabet=ANY))
def test_only_the_canonical_spelling_of_an_id_in_the_range_is_parsed(text):
    number = parse_id(text)
    is_canonical = re.fullmatch("[1-9][0-9]*", text) is not None and int(text) <= MAX_INT64
    assert number == (int(text) if is_canonical else None)
