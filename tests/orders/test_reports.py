"""getStats and getUsage: figures of the store, and of the key."""

from __future__ import annotations

import gzip
import random
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from orders.webhooks import endpoints
from tests.support.stores import assert_error

STATS, EVENTS, USAGE = "/v2/store/stats", "/v2/store/events", "/v2/usage"


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


def test_a_long_report_is_compressed_for_clients_that_accept_gzip(client_v2):
    for _ in range(60):
        client_v2.place()
    gzipped = {"Accept-Encoding": "gzip"}
    for path, short, long in ((STATS, "days=1", "days=366"), (EVENTS, "limit=1", "limit=200")):
        response = client_v2.get(f"{path}?{short}", headers=gzipped)
        assert not {"Content-Encoding", "Vary"} & {name for name, _ in response.headers}
        plain = client_v2.get(f"{path}?{long}")
        response = client_v2.get(f"{path}?{long}", headers=gzipped)
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


INVALID = (
    *("days=0", "days=367", "days=", "days=1.0", "day=1", "days=1&days=1"),
    *(
        "zone=",
        "zone=Mars/Olympus",
        "zone=localtime",
        "zone=europe/berlin",
        "zone=%2B01:00",
        "zone=../UTC",
    ),
)


def test_unknown_parameters_and_invalid_values_are_rejected_by_name(client_v2):
    for query in INVALID:
        response = client_v2.get(f"{STATS}?{query}")
        assert_error(response, 422, "validation_failed")
        assert response.get_json()["message"].startswith(f"{query.split('=')[0]}: ")


def import_csv(client, folder, *lines):
    """Import orders from a CSV file of these lines."""
    (folder / "some.csv").write_text("".join(f"{line}\n" for line in lines))
    runner = client.store.app.test_cli_runner()
    done = runner.invoke(args=["orders", "import", str(folder / "some.csv")])
    assert done.exit_code == 0, done.stderr


ZONES = ("UTC", "Asia/Kathmandu", "Pacific/Auckland", "America/St_Johns", "Europe/Berlin")


@pytest.mark.parametrize("begin", ["2026-11-01", "2026-03-28"])
def test_the_days_of_each_zone_agree_with_the_orders(client_v2, clock, tmp_path, begin):
    # Clocks change meanwhile.
    clock.wall = datetime.fromisoformat(f"{begin}T12:00:00Z").timestamp()
    chance = random.Random(3)
    lines = ["id,petId,status,placedAt,shipDate,updatedAt"]
    for number in range(60):
        at = client_v2.store.clock.now() - timedelta(minutes=chance.randrange(36_000))
        ship_date, updated = (at + timedelta(minutes=chance.randrange(6000)) for _ in range(2))
        status = chance.choice(["pending", "shipped", "cancelled"])
        updated = min(updated, client_v2.store.clock.now())
        times = ",".join(each.isoformat() for each in (at, ship_date, updated))
        lines.append(f"{number * 3 + 1 if number % 3 else ''},7,{status},{times}")
    import_csv(client_v2, tmp_path, *lines)
    for _ in range(40):
        client_v2.place()
        client_v2.store.clock.advance(7200)
        (client_v2.ship if chance.random() < 0.5 else client_v2.cancel)(chance.randint(1, 200))
    happened = []
    for order in client_v2.get("/v2/store/orders?limit=200").get_json()["orders"]:
        happened.append((0, order["placedAt"]))
        if order["status"] != "pending":
            is_shipped = order["complete"]
            happened.append((1, order["shipDate"]) if is_shipped else (2, order["updatedAt"]))
    for zone in ZONES:
        counts = {}
        for which, at in happened:
            day = counts.setdefault(local_day(at, zone), [0, 0, 0])
            day[which] += 1
        figures = stats(client_v2, f"days=366&zone={zone}")
        assert len(figures["days"]) == 366
        assert figures["days"][-1]["date"] == local_day(client_v2.store.clock.now(), zone)
        known = {day["date"] for day in figures["days"]}
        expected = {day: tuple(each) for day, each in counts.items() if day in known}
        assert busy_days(figures) == expected, zone
        assert sum(map(sum, expected.values())) > 90


def local_day(at, zone):
    """Return the date of an instant in a time zone."""
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    return instant.astimezone(ZoneInfo(zone)).date().isoformat()


# The service's own backups.


@pytest.mark.sqlite_only("files, which the service copies")
def test_the_newest_backup_is_reported_where_the_service_makes_some(make_store):
    with_backups = make_store(backups="backups").client()
    assert stats(with_backups)["backups"] == {"sameDisk": True}
    with_backups.store.shop.backups.make()
    assert stats(with_backups)["backups"]["last"] == "2026-12-01T12:00:00.000Z"
    assert "backups" not in stats(make_store(backups="").client())


# Webhooks that are paused.


def test_a_paused_webhook_is_reported_until_it_is_resumed(client_v2, hooks):
    first, second = hooks.add("https://one.example/"), hooks.add("https://two.example/")
    assert "pausedWebhooks" not in stats(client_v2)
    hooks.change(endpoints.pause, second, "a person did", client_v2.store.clock.now())
    figures = stats(client_v2)
    # Which, and since when: its address may hold a secret of its own, and is not shown.
    assert figures["pausedWebhooks"] == [{"id": second, "since": "2026-12-01T12:00:00.000Z"}]
    assert list(figures)[:2] == ["byStatus", "days"]
    hooks.change(endpoints.resume, second, client_v2.store.clock.now(), None)
    assert "pausedWebhooks" not in stats(client_v2)
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
