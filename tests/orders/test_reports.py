"""getStats and getUsage: figures of the store, and of the key."""

from __future__ import annotations

import gzip
import random
from datetime import UTC, datetime, timedelta

import pytest

from orders.webhooks import endpoints
from tests.support.stores import assert_error

STATS, USAGE = "/v2/store/stats", "/v2/usage"


def stats(client, query=""):
    """Return the figures."""
    response = client.get(f"{STATS}?{query}")
    assert response.status_code == 200, response.get_json()
    return response.get_json()


def busy_days(figures):
    """Return the days on which something happened, as placed, shipped, cancelled."""
    days = {
        day["date"]: (day["placed"], day["shipped"], day["cancelled"]) for day in figures["days"]
    }
    return {day: counts for day, counts in days.items() if any(counts)}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (f"{STATS}?days=1", f"{STATS}?days=366"),
        ("/v2/store/events?limit=1", "/v2/store/events?limit=200"),
    ],
)
def test_a_long_report_is_compressed_for_clients_that_accept_gzip(client_v2, short, long):
    for _ in range(60):
        client_v2.place()
    gzipped = {"Accept-Encoding": "gzip"}
    response = client_v2.get(short, headers=gzipped)
    assert not {"Content-Encoding", "Vary"} & {name for name, _ in response.headers}
    response, plain = client_v2.get(long, headers=gzipped), client_v2.get(long)
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(response.data) == plain.data
    assert plain.headers["Vary"] == response.headers["Vary"] == "Accept-Encoding"


# getStats.


def test_an_empty_store_has_thirty_empty_days(client_v2):
    figures = stats(client_v2)
    assert figures["byStatus"] == {"pending": 0, "shipped": 0, "cancelled": 0}
    assert [day["date"] for day in figures["days"]][::29] == ["2026-11-02", "2026-12-01"]
    assert len(figures["days"]) == 30
    assert figures["days"][0] == {"date": "2026-11-02", "placed": 0, "shipped": 0, "cancelled": 0}


def test_each_change_counts_on_its_day(client_v2):
    for _ in range(4):
        client_v2.place(shipDate="2026-12-20T08:00:00Z")
    client_v2.store.clock.advance(2 * 86_400)
    client_v2.ship(1, shipDate="2026-11-30T23:59:59.999Z")
    client_v2.ship(2, shipDate="2026-12-01T00:30:00+01:00")
    client_v2.ship(3)
    client_v2.cancel(4)
    client_v2.place()
    figures = stats(client_v2, "days=10")
    assert figures["byStatus"] == {"pending": 1, "shipped": 3, "cancelled": 1}
    assert busy_days(figures) == {
        "2026-11-30": (0, 2, 0),
        "2026-12-01": (4, 0, 0),
        "2026-12-03": (1, 1, 1),
    }
    assert len(figures["days"]) == 10
    assert busy_days(stats(client_v2, "days=1")) == {"2026-12-03": (1, 1, 1)}
    assert stats(client_v2, "days=1")["byStatus"] == figures["byStatus"]


def test_imported_orders_count_on_the_days_of_the_file(client_v2, tmp_path):
    placed, ships, changed = (f"2026-11-{day}T12:00:00Z" for day in (28, 29, 30))
    import_csv(
        client_v2,
        tmp_path,
        "petId,status,placedAt,shipDate,updatedAt",
        f"7,pending,{placed},{ships},",
        f"7,shipped,{placed},{ships},{changed}",
        f"7,cancelled,{placed},{ships},{changed}",
    )
    assert busy_days(stats(client_v2)) == {
        "2026-11-28": (3, 0, 0),
        "2026-11-29": (0, 1, 0),
        "2026-11-30": (0, 0, 1),
    }


@pytest.mark.parametrize(
    "query", ["days=0", "days=367", "days=", "days=1.0", "day=1", "days=1&days=1"]
)
def test_unknown_parameters_and_invalid_values_are_rejected_by_name(client_v2, query):
    response = client_v2.get(f"{STATS}?{query}")
    assert_error(response, 422, "validation_failed")
    assert response.get_json()["message"].startswith(f"{query.split('=')[0]}: ")


def test_a_whole_year_can_be_requested(client_v2):
    figures = stats(client_v2, "days=366")
    assert (len(figures["days"]), figures["days"][0]["date"]) == (366, "2025-12-01")


def import_csv(client, folder, *lines):
    """Import orders from a CSV file of these lines."""
    (folder / "some.csv").write_text("".join(f"{line}\n" for line in lines))
    runner = client.store.app.test_cli_runner()
    done = runner.invoke(args=["orders", "import", str(folder / "some.csv")])
    assert done.exit_code == 0, done.stderr


def day_rows(store):
    """Return what is kept of each day."""
    return {row.pop("day"): row for row in store.rows("SELECT * FROM order_days")}


def test_the_table_of_days_agrees_with_the_orders(client_v2, tmp_path):
    chance = random.Random(3)
    lines = ["id,petId,status,placedAt,shipDate"]
    for number in range(60):
        at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=chance.randrange(600))
        ship_date = (at + timedelta(hours=chance.randrange(100))).isoformat()
        status = chance.choice(["pending", "shipped", "cancelled"])
        kept = "" if status == "pending" and number % 2 else ship_date
        lines.append(f"{number * 3 + 1 if number % 3 else ''},7,{status},{at.isoformat()},{kept}")
    import_csv(client_v2, tmp_path, *lines)
    for _ in range(40):
        client_v2.place(shipDate=f"2026-12-{chance.randint(1, 28):02}T08:00:00Z")
        client_v2.store.clock.advance(7200)
        (client_v2.ship if chance.random() < 0.5 else client_v2.cancel)(chance.randint(1, 200))
    orders = client_v2.store.rows("SELECT * FROM orders")
    kept = day_rows(client_v2.store)
    for counted, column, status in (
        ("placed", "placed_at", None),
        ("shipped", "ship_date", "shipped"),
    ):
        counts = dict.fromkeys(kept, 0)
        for order in orders:
            if status in {None, order["status"]}:
                counts[order[column][:10]] += 1
        assert counts == {day: row[counted] for day, row in kept.items()}


# Webhooks that are paused.


def test_a_paused_webhook_is_reported_until_it_is_resumed(client_v2, hooks):
    first, second = hooks.add("https://one.example/"), hooks.add("https://two.example/")
    assert "pausedWebhooks" not in stats(client_v2)
    hooks.change(endpoints.pause, second, "a person did", client_v2.store.clock.now())
    figures = stats(client_v2)
    # Which, and since when: its address may hold a secret of its own, and is not shown.
    assert figures["pausedWebhooks"] == [{"id": second, "since": "2026-12-01T12:00:00.000Z"}]
    assert list(figures) == ["byStatus", "days", "pausedWebhooks"]
    hooks.change(endpoints.resume, second, client_v2.store.clock.now(), None)
    assert list(stats(client_v2)) == ["byStatus", "days"]
    assert first != second


# getUsage.


def test_the_usage_is_that_of_the_key_and_counts_itself(store):
    client = store.client(plan="free", name="the web shop", scopes=("read",))
    client.get(STATS)
    response = client.get(USAGE)
    now = int(store.clock.time())
    assert response.get_json() == {
        "id": client.key_id,
        "name": "the web shop",
        "plan": "free",
        "scopes": ["read"],
        "windows": {
            "minute": {"limit": 60, "remaining": 58, "reset": now + 60},
            "day": {"limit": 1000, "remaining": 998, "reset": now + 86_400},
        },
    }
    minute = response.get_json()["windows"]["minute"]
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    assert [int(response.headers[name]) for name in names] == list(minute.values())
    assert response.headers["RateLimit"] == '"minute";r=58;t=60, "day";r=998;t=86400'


def test_the_last_request_can_be_the_one_for_the_usage(store):
    client = store.client(plan="enterprise", per_minute=2, per_day=10)
    client.get(USAGE)
    windows = client.get(USAGE).get_json()["windows"]
    assert [windows[name]["remaining"] for name in ("minute", "day")] == [0, 8]
    assert_error(client.get(USAGE), 429, "rate_limit_exceeded")


def test_scopes_and_expiry_are_those_of_the_key(store):
    usage = store.client(expires_at=store.clock.now() + timedelta(days=1)).get(USAGE).get_json()
    assert usage["scopes"] == ["read", "write"]
    assert usage["expires"] == "2026-12-02T12:00:00.000Z"
