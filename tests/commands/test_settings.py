"""Settings: from config.toml and the environment, read once, checked, frozen."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from datetime import date
from ipaddress import ip_network
from pathlib import Path

import pytest

from orders import settings
from orders.settings import SETTINGS, Plan, Settings, SettingsError

# Values that are written the same way in the environment and in config.toml.
PLAIN = {
    "host": ["0.0.0.0"],
    "port": [0, 9000, 65_535],
    "threads": [8],
    "base_url": ["https://x.example/v1", "https://x.example/shop/v1"],
    "staging_base_url": ["https://s.example/v1", ""],
    "database_url": ["sqlite:////data/x.db"],
    "copy_to": ["", "postgresql+psycopg://db/x"],
    "limits_url": [
        *("", "redis://cache", "rediss://shop@cache:1/2", "redis://:p%2F@cache"),
        *("redis://[::1]:6379/", "unix://:p@/run/r.sock?db=2"),
    ],
    "ban_after": [3],
    "ban_window": [10],
    "ban_seconds": [20],
    "backups": ["kept", "/mnt/backups"],
    "head_seconds": [5],
    "body_seconds": [7],
    "log": ["json", "text"],
    "log_file": ["", "log.txt"],
}
# Other settings: the text in the environment, the text in config.toml, and the value of both.
EXAMPLES = [
    *((name, str(each), json.dumps(each), each) for name, some in PLAIN.items() for each in some),
    ("backups", "off", "false", ""),
    ("backups_keep", "1 daily", '"1 daily"', (1, 0)),
    ("backups_keep", "52 weekly, 30 daily", '"52 weekly,30 daily"', (30, 52)),
    ("forget_after_days", "90", "90", 90),
    ("forget_after_days", "off", "false", 0),
    ("limits_url", "valkey://cache:6379", '"valkey://cache:6379"', "redis://cache:6379"),
    ("limits_url", "valkeys://cache", '"valkeys://cache"', "rediss://cache"),
    ("pets_sunset", "2031-01-31", "2031-01-31", date(2031, 1, 31)),
    ("pets_sunset", "2031-01-31", '"2031-01-31"', date(2031, 1, 31)),
    (
        *("trusted_proxy", "10.0.0.0/8, 2001:db8::1", '["10.0.0.0/8", "2001:db8::1"]'),
        (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128")),
    ),
    ("trusted_proxy", "192.0.2.1", '"192.0.2.1"', (ip_network("192.0.2.1/32"),)),
    ("trusted_proxy", "", "[]", ()),
    ("metrics", "off", "false", False),
    ("metrics", "on", "true", True),
    ("unique_references", "on", "true", True),
]
BAD = {
    "host": [""],
    "port": [-1, 65_536, "http", 80.0, "", " 80", "+80", "8_0", "٨٠"],
    "threads": [0, 1_000_000],
    "base_url": [
        *("", "orders.example/v1", "https://orders.example", "https://orders.example/v2"),
        *("https://orders.example/v11", "https://orders.example/v1?x=1"),
        *("https://orders.example/v1#x", "ftp://orders.example/v1", "https:///v1"),
        "https://[::1/v1",
    ],
    "staging_base_url": ["https://s.example/v2"],
    "database_url": ["mysql://db/orders", "sqlite:///"],
    "limits_url": [
        *("memcached://cache", "redis", "://cache", "redis://", "redis://:6379"),
        *("redis://cache:many", "redis://cache:0", "redis://cache/orders"),
        *(
            "redis://cache?db=orders",
            "redis://cache?socket_timeout=9",
            "redis://:s3cret/word@cache",
        ),
        *("redis://:s3cret?word@cache", "redis://:s3cret#word@cache"),
        *("unix://", "unix://run/redis.sock"),
    ],
    "ban_after": [0],
    "ban_window": [1],
    "ban_seconds": [-300, "5m"],
    "pets_sunset": ["5 December 2030", "2030-02-30", ""],
    "trusted_proxy": ["proxy.example", "10.0.0.0/33"],
    "backups": [""],
    "forget_after_days": ["", "0", "-1", "36501", "a year"],
    "backups_keep": ["", "7", "0 daily", "7 daily, 4 monthly", "7 daily, 8 daily", "daily"],
    "head_seconds": [0],
    "body_seconds": [0],
    "log": ["xml", ""],
    "log_file": ["."],
    "copy_to": ["sqlite:////data/x.db", "postgresql://db"],
    "metrics": ["yes", 2],
    "unique_references": ["yes"],
}
# Values of a wrong type, which only config.toml can have.
BAD_TYPES = [
    *(("host", "1"), ("port", "true"), ("base_url", "1"), ("limits_url", "1"), ("copy_to", "1")),
    *(("pets_sunset", "2030"), ("trusted_proxy", "[1]"), ("trusted_proxy", "10"), ("log", "true")),
    ("trusted_proxy", '["10.0.0.0/33"]'),
]


def from_environment(tmp_path, **values):
    """Load the settings from an environment alone."""
    return settings.load({"ORDERS_INSTANCE": str(tmp_path), "PATH": "/bin", **values})


def from_config(tmp_path, text, **values):
    """Load the settings from a config.toml and an environment."""
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    return from_environment(tmp_path, **values)


def complaint(load, *arguments, **values):
    """Return the one-line message about invalid settings."""
    with pytest.raises(SettingsError) as rejected:
        load(*arguments, **values)
    message = str(rejected.value)
    assert message
    assert "\n" not in message
    return message


# Defaults; `test_documentation` compares their values with the page of settings.


@pytest.mark.checkout("its folder is in it")
def test_the_instance_folder_is_beside_the_program_unless_set():
    root = Path(settings.__file__).resolve().parent.parent
    assert (root / "app.py").exists()
    assert Settings().instance == root / "instance"


def test_a_relative_instance_folder_is_relative_to_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings.load({"ORDERS_INSTANCE": "here"}).instance == tmp_path / "here"


def test_the_database_is_in_the_instance_folder_or_where_its_setting_says(tmp_path):
    loaded = from_environment(tmp_path)
    assert loaded.database_path.parent == loaded.counters_path.parent == tmp_path
    assert loaded.database_path != loaded.counters_path
    loaded = from_environment(tmp_path, ORDERS_DATABASE_URL="sqlite:////data/orders.db")
    assert loaded.database_path == Path("/data/orders.db")


@pytest.mark.parametrize(
    ("environment", "base_url"),
    [
        ({"ORDERS_HOST": "0.0.0.0"}, "http://0.0.0.0:8080/v1"),
        ({"ORDERS_PORT": "9000"}, "http://127.0.0.1:9000/v1"),
        ({"ORDERS_HOST": "::1", "ORDERS_PORT": "81"}, "http://[::1]:81/v1"),
        ({"ORDERS_PORT": "81", "ORDERS_BASE_URL": "https://x.example/v1"}, "https://x.example/v1"),
    ],
)
def test_the_base_url_follows_host_and_port_unless_set(tmp_path, environment, base_url):
    assert from_environment(tmp_path, **environment).base_url == base_url


def test_the_settings_are_frozen(tmp_path):
    with pytest.raises(dataclasses.FrozenInstanceError):
        from_environment(tmp_path).port = 1


# Each setting, from both places.


def test_every_setting_has_an_example_and_an_invalid_value_here():
    assert {name for name, *_ in EXAMPLES} | {"instance"} == set(SETTINGS)
    assert BAD.keys() | {"instance"} == set(SETTINGS)


@pytest.mark.parametrize(("name", "text", "toml", "value"), EXAMPLES)
def test_a_setting_is_read_from_the_environment_and_from_config_toml(
    tmp_path, name, text, toml, value
):
    loaded = from_environment(tmp_path, **{f"ORDERS_{name.upper()}": text})
    assert getattr(loaded, name) == value
    assert getattr(from_config(tmp_path, f"{name} = {toml}"), name) == value


@pytest.mark.parametrize(
    ("name", "text", "toml"),
    [
        *((name, str(each), json.dumps(each)) for name, some in BAD.items() for each in some),
        *((name, None, toml) for name, toml in BAD_TYPES),
    ],
)
def test_a_bad_value_is_rejected_with_the_name_of_its_setting(tmp_path, name, text, toml):
    if text is not None:
        variable = f"ORDERS_{name.upper()}"
        assert variable in complaint(from_environment, tmp_path, **{variable: text})
    message = complaint(from_config, tmp_path, f"{name} = {toml}")
    assert message.startswith(f"{name} in ")
    assert "config.toml" in message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ORDERS_PORT", "many", "from 0 to 65535"),
        ("ORDERS_PORT", "9" * 5_000, "from 0 to 65535"),
        ("ORDERS_LOG", "xml", "text or json"),
        ("ORDERS_BASE_URL", "https://x.example", "/v1"),
        ("ORDERS_PETS_SUNSET", "soon", "2030-12-05"),
    ],
    ids=lambda value: value[:30],
)
def test_the_message_describes_valid_values(tmp_path, name, value, words):
    assert words in complaint(from_environment, tmp_path, **{name: value})


def test_postgresql_is_chosen_by_its_url(tmp_path):
    for scheme in ("postgresql+psycopg", "postgresql", "postgres"):
        loaded = from_environment(
            tmp_path, ORDERS_DATABASE_URL=f"{scheme}://db/orders?sslmode=require"
        )
        assert loaded.is_on_postgres
        assert loaded.database_url == "postgresql+psycopg://db/orders?sslmode=require"
    assert not from_environment(tmp_path).is_on_postgres


@pytest.mark.checkout("is told of its extras; of a package, see test_program")
def test_the_message_about_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for name, url, extra in (
        ("ORDERS_DATABASE_URL", "postgresql://db/orders", "postgres"),
        ("ORDERS_COPY_TO", "postgresql://db/orders", "postgres"),
        ("ORDERS_LIMITS_URL", "redis://cache", "redis"),
    ):
        message = complaint(from_environment, tmp_path, **{name: url})
        assert f"pip install -e '.[{extra}]'" in message


@pytest.mark.parametrize(
    ("name", "url"),
    [
        *(
            (name, address)
            for name in ("database_url", "copy_to")
            for address in (
                "postgresql+asyncpg://me:hunter2@db/orders",  # pragma: allowlist secret
                "postgresql://me:hunter2@db/",  # pragma: allowlist secret
                "postgresql://me:hunter2@db:x/orders",  # pragma: allowlist secret
                "mysql://me:hunter2@db/orders",  # pragma: allowlist secret
            )
        ),
        ("database_url", "redis://:hunter2/word@cache"),
        ("limits_url", "redis://:hunter2/word@cache"),
        ("limits_url", "mysql://:hunter2@db/orders"),
    ],
)
def test_an_invalid_database_url_is_rejected_without_showing_its_password(tmp_path, name, url):
    variable = f"ORDERS_{name.upper()}"
    for message in (
        complaint(from_environment, tmp_path, **{variable: url}),
        complaint(from_config, tmp_path, f'{name} = "{url}"'),
    ):
        assert "hunter2" not in message
        assert "it must" in message or "the only driver" in message


def test_a_password_is_in_no_representation_of_the_settings(tmp_path):
    url = "postgresql://me:hunter2@db/orders"  # pragma: allowlist secret
    loaded = from_environment(tmp_path, ORDERS_LIMITS_URL="redis://:hunter2@cache")
    assert "hunter2" in loaded.limits_url
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in repr(Settings(database_url=url, copy_to=url))


def test_the_environment_overrides_config_toml(tmp_path):
    loaded = from_config(tmp_path, 'port = 9000\nlog = "json"', ORDERS_PORT="9001")
    assert (loaded.port, loaded.log) == (9001, "json")


# Names.


@pytest.mark.parametrize("name", ["ORDERS_PROT", "ORDERS_", "ORDERS_PLANS", "ORDERS_CONFIG"])
def test_an_unknown_name_in_the_environment_is_an_error(tmp_path, name):
    message = complaint(from_environment, tmp_path, **{name: "1"})
    assert message.startswith(f"{name} is not a setting")
    assert "ORDERS_PORT" in message


@pytest.mark.parametrize("name", ["prot", "PORT", "orders_port", "ORDERS_PORT", "plan", "instance"])
def test_an_unknown_name_in_config_toml_is_an_error(tmp_path, name):
    message = complaint(from_config, tmp_path, f"{name} = 1")
    assert message.startswith(f"{name} in ")
    assert "is not a setting" in message


def test_other_programs_variables_are_ignored(tmp_path):
    loaded = from_environment(tmp_path, ORDERSPORT="1", MY_ORDERS_PORT="2", PORT="3")
    assert loaded.port == 8080


# config.toml.


@pytest.mark.parametrize(
    "content",
    [b"port", b"port = ", b"port = 1\nport = 2", b"[plans.gold", b"= 1", b'host = "\xff"', None],
)
def test_a_file_that_cannot_be_read_is_reported_by_its_name(tmp_path, content):
    file = tmp_path / "config.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert str(file) in complaint(from_environment, tmp_path)


# Plans.


def test_a_plan_can_be_added_or_changed(tmp_path):
    loaded = from_config(tmp_path, "[plans.gold]\nper_minute = 7\nper_day = 70")
    assert loaded.plans["gold"] == Plan("gold", 7, 70)
    assert list(loaded.plans) == [*settings.DEFAULT_PLANS, "gold"]
    loaded = from_config(tmp_path, "[plans.free]\nper_minute = 7\nper_day = 70")
    assert loaded.plans["free"] == Plan("free", 7, 70)
    assert loaded.plans["pro"] == Plan("pro", 300, 10_000)


@pytest.mark.parametrize(
    "text",
    [
        *("plans = 1", "plans = []", "[plans]\ngold = 7", "[plans.gold]"),
        *("[plans.gold]\nper_minute = 7", "[plans.gold]\nper_day = 7"),
        "[plans.gold]\nper_minute = 7\nper_day = 70\nper_hour = 20",
        *(
            f"[plans.gold]\nper_minute = {per_minute}\nper_day = {per_day}"
            for per_minute, per_day in (
                *((0, 70), (7, -1), (7.5, 70), ("true", 70), ('"many"', 70), (7, 10_000_000_000)),
            )
        ),
    ],
)
def test_an_invalid_plan_is_rejected(tmp_path, text):
    assert "[plans.gold]" in complaint(from_config, tmp_path, text)


def test_the_enterprise_plan_cannot_be_given_limits(tmp_path):
    text = "[plans.enterprise]\nper_minute = 7\nper_day = 70"
    assert "when a key is issued" in complaint(from_config, tmp_path, text)
