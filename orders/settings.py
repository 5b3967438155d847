"""Every setting: read once, checked, frozen. The only reader of the environment.

A setting comes from `config.toml` in the instance folder (lower case, without `ORDERS_`) and then
from the environment, which wins. `SETTINGS` is the list of them all; a test compares
docs/settings.md and `instance/config.example.toml` with it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast, get_origin, get_type_hints
from urllib.parse import urlsplit

from orders import urls
from orders.domain import Expected
from orders.installation import instance_folder

PREFIX = "ORDERS_"
CONFIG_FILE = "config.toml"
DATABASE_NAME = "orders.db"
# The folder, or on PostgreSQL the schema, of the store for test mode.
TEST_MODE = "test"
# On every answer to a test key, and every message of test mode's webhooks.
TEST_HEADER = ("Store-Mode", TEST_MODE)
# How the names of test mode's threads begin, by which the log recognises its lines.
TEST_LABEL = "test mode: "

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SettingsError(Expected):
    """A setting can't be used. The message is one line that says how to fix it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests that a plan allows. Both are None where each key has its own (enterprise)."""

    name: str
    per_minute: int | None
    per_day: int | None


# From the specification, "Limits".
DEFAULT_PLANS = {
    "free": Plan("free", 60, 1_000),
    "pro": Plan("pro", 300, 10_000),
    "business": Plan("business", 1_000, 100_000),
    "enterprise": Plan("enterprise", None, None),
}
MAX_FIGURE = 10**9
# The longest time until a key expires, or its previous secret ends.
LONGEST_DAYS = 36_500
# A hundred years.
_MAX_DAYS = 36_500
_FIGURES = ("per_minute", "per_day")
_KEPT = re.compile(r"([0-9]{1,4}) (daily|weekly)")
_DIGITS = re.compile(r"[0-9]{1,18}")
_SWITCHES = dict.fromkeys(("on", "true", "1"), True) | dict.fromkeys(
    ("off", "false", "0", ""), False
)


@dataclass(frozen=True)
class Settings:
    """Each setting, with its parser and its default. Durations are in seconds."""

    instance: Annotated[Path, _text] = field(default_factory=instance_folder)
    host: Annotated[str, _host] = "127.0.0.1"
    port: Annotated[int, _whole_number(0, 65_535)] = 8080
    threads: Annotated[int, _whole_number(1, 64)] = 4
    base_url: Annotated[str, _text_as(urls.base_url)] = "http://127.0.0.1:8080/v1"
    staging_base_url: Annotated[str, _optional(urls.base_url)] = ""
    # These may hold a password, and are shown in no message.
    database_url: Annotated[str, _optional(urls.database_url)] = field(default="", repr=False)
    copy_to: Annotated[str, _optional(urls.copy_to)] = field(default="", repr=False)
    limits_url: Annotated[str, _optional(urls.redis_url)] = field(default="", repr=False)
    ban_after: Annotated[int, _whole_number(1, MAX_FIGURE)] = 30
    ban_window: Annotated[int, _whole_number(2, 86_400)] = 60
    ban_seconds: Annotated[int, _whole_number(1, 31_536_000)] = 300
    pets_sunset: Annotated[date, _date] = date(2030, 12, 5)
    trusted_proxy: Annotated[tuple[Network, ...], _networks] = ()
    backups: Annotated[str, _folder] = "backups"
    # How many daily and how many weekly backups are kept.
    backups_keep: Annotated[tuple[int, int], _kept] = (7, 4)
    # Days without a change after which a settled order's personal data is deleted; 0: never.
    forget_after_days: Annotated[int, _days] = 0
    unique_references: Annotated[bool, _switch] = False
    head_seconds: Annotated[int, _whole_number(1, 3_600)] = 10
    body_seconds: Annotated[int, _whole_number(1, 3_600)] = 30
    log: Annotated[str, _log] = "text"
    log_file: Annotated[str, _file] = ""
    metrics: Annotated[bool, _switch] = False
    # Where to notify systemd of the service's state; from NOTIFY_SOCKET, which it sets.
    notify_socket: str = ""
    # Whether these settings are test mode's: of the store that only test keys reach.
    is_test: bool = False
    plans: Mapping[str, Plan] = field(default_factory=lambda: dict(DEFAULT_PLANS))

    @property
    def is_on_postgres(self) -> bool:
        return self.database_url.startswith(urls.POSTGRES)

    @property
    def database_path(self) -> Path:
        if self.database_url:
            return Path(self.database_url.removeprefix("sqlite:///"))
        return self.instance / DATABASE_NAME

    @property
    def backups_path(self) -> Path | None:
        """The folder of automatic backups; None if there are none."""
        if self.is_on_postgres or not self.backups:
            return None
        return self.instance / self.backups

    def in_test_mode(self) -> Settings:
        """Return the same settings for the store of test keys, of which there are no backups."""
        url = self.database_url if self.is_on_postgres else ""
        folder = self.instance / TEST_MODE
        return replace(self, is_test=True, instance=folder, database_url=url, backups="")

    @cached_property
    def path_prefix(self) -> str:
        """The path of the public address without the version: empty, or such as `/shop`."""
        return urlsplit(self.base_url).path.removesuffix("/v1")

    @property
    def log_path(self) -> Path | None:
        """Where the log is, unless it goes to standard error."""
        return self.instance / self.log_file if self.log_file else None

    @property
    def counters_path(self) -> Path:
        return self.instance / "counters.db"


def load(environ: Mapping[str, str] | None = None) -> Settings:
    environ = os.environ if environ is None else environ
    # By name: where the setting comes from, and its raw value.
    raw = {
        name.removeprefix(PREFIX).lower(): (name, value)
        for name, value in environ.items()
        if name.startswith(PREFIX)
    }
    instance = _instance(raw.pop("instance", ("", ""))[1])
    config = _read_config(instance / CONFIG_FILE)
    plans = _read_plans(config.pop("plans", {}))
    for name, value in config.items():
        raw.setdefault(name, (f"{name} in {instance / CONFIG_FILE}", value))
    values = {name: _read_value(name, source, value) for name, (source, value) in raw.items()}
    values.setdefault("base_url", _default_base_url(values))
    values["notify_socket"] = environ.get("NOTIFY_SOCKET", "")
    settings = Settings(instance=instance, plans=plans, **cast("dict[str, Any]", values))
    if not settings.is_on_postgres and _is_of_test_mode(settings):
        raise SettingsError(
            f"The database is {settings.database_path}, which is kept for test mode. Choose "
            "another file with ORDERS_DATABASE_URL."
        )
    return settings


def _is_of_test_mode(settings: Settings) -> bool:
    return settings.database_path.resolve() == settings.in_test_mode().database_path.resolve()


def of_the_log() -> Settings:
    """Return the settings of the log, also where another setting can't be used."""
    settings = Settings(instance=Path())
    with suppress(SettingsError, ValueError):
        instance = _instance(os.environ.get(f"{PREFIX}INSTANCE", ""))
        config = _read_config(instance / CONFIG_FILE)
        file = _file(os.environ.get(f"{PREFIX}LOG_FILE", config.get("log_file", "")))
        settings = Settings(instance=instance, log_file=file)
        log = os.environ.get(f"{PREFIX}LOG", config.get("log", "text"))
        return replace(settings, log=_log(log))
    return settings


def in_environment() -> list[str]:
    """Return the names of the settings in the environment, but for that of the folder."""
    names = {name for name in os.environ if name.startswith(PREFIX)}
    return sorted(names - {f"{PREFIX}INSTANCE"})


def has_screen() -> bool:
    """Return whether a person at a screen started this program on Linux, without a terminal."""
    return "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ


def sudo_user() -> str:
    """Return the user who ran this program by `sudo`; empty without."""
    return os.environ.get("SUDO_USER", "")


def _instance(named: str) -> Path:
    folder = Path(named) if named else instance_folder()
    if not named and not folder.is_absolute():
        raise SettingsError(
            "This user has no home folder for the data. Name a folder with ORDERS_INSTANCE."
        )
    return folder.absolute()


def _default_base_url(values: Mapping[str, Any]) -> str:
    host = values.get("host", Settings.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{values.get('port', Settings.port)}/v1"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}. Fix that line.") from None
    except OSError as error:
        raise SettingsError(
            f"{path} can't be read: {error.strerror}. Let this user read it."
        ) from None


def _read_value(name: str, source: str, raw: object) -> object:
    reader = SETTINGS.get(name)
    if reader is None or name == "instance":
        known = ", ".join(PREFIX + each.upper() for each in SETTINGS)
        raise SettingsError(f"{source} is not a setting. The settings are {known}.")
    try:
        return reader(raw)
    except ValueError as error:
        secret = {each.name for each in fields(Settings) if not each.repr}
        shown = "not usable" if name in secret else repr(raw)
        raise SettingsError(f"{source} is {shown}: {error}.") from None


def _read_plans(raw: object) -> dict[str, Plan]:
    if not isinstance(raw, dict) or not all(isinstance(plan, dict) for plan in raw.values()):
        raise SettingsError("plans in config.toml must be tables such as [plans.gold].")
    plans = dict(DEFAULT_PLANS)
    for name, figures in raw.items():
        if name == "enterprise":
            raise SettingsError(
                "[plans.enterprise] can't be set: its figures are set when a key is issued. "
                "Add a plan of another name."
            )
        if set(figures) != set(_FIGURES):
            raise SettingsError(f"[plans.{name}] needs per_minute and per_day, and nothing else.")
        try:
            plans[name] = Plan(name, *(check_figure(figures[key]) for key in _FIGURES))
        except ValueError as error:
            raise SettingsError(f"[plans.{name}]: {error}.") from None
    return plans


def check_figure(value: object) -> int:
    """Return a plan's figure, a whole number from 1 to 10^9; ValueError for others."""
    return _whole_number(1, MAX_FIGURE)(value)


def _whole_number(least: int, most: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        text = str(raw) if isinstance(raw, (str, int)) and not isinstance(raw, bool) else ""
        if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"it must be a whole number from {least} to {most}")
        return int(text)

    return read


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError("it must be a text")  # noqa: TRY004 - one kind of fault for all settings
    return raw.strip()


def _text_as(check: Callable[[str], str]) -> Callable[[object], str]:
    return lambda raw: check(_text(raw))


def _optional(check: Callable[[str], str]) -> Callable[[object], str]:
    return lambda raw: check(text) if (text := _text(raw)) else ""


def _host(raw: object) -> str:
    host = _text(raw)
    if not host:
        raise ValueError("it must be an address to listen on, such as 127.0.0.1")
    return host


def _date(raw: object) -> date:
    if isinstance(raw, date):
        return raw
    try:
        return date.fromisoformat(_text(raw))
    except ValueError:
        raise ValueError("it must be a date such as 2030-12-05") from None


def _networks(raw: object) -> tuple[Network, ...]:
    entries = raw if isinstance(raw, list) else _text(raw).replace(",", " ").split()
    try:
        return tuple(ipaddress.ip_network(_text(entry), strict=False) for entry in entries)
    except ValueError:
        raise ValueError(
            "it must be addresses or networks such as 127.0.0.1 or 10.0.0.0/8"
        ) from None


def _folder(raw: object) -> str:
    folder = "off" if raw is False else _text(raw)
    if not folder:
        raise ValueError("it must be a folder, or off")
    return "" if folder == "off" else folder


def _kept(raw: object) -> tuple[int, int]:
    parts = [_KEPT.fullmatch(part.strip()) for part in _text(raw).split(",")]
    kept = {part[2]: int(part[1]) for part in parts if part}
    if len(kept) < len(parts) or not any(kept.values()):
        raise ValueError("it must be how many to keep, such as 7 daily, 4 weekly")
    return kept.get("daily", 0), kept.get("weekly", 0)


def _days(raw: object) -> int:
    return 0 if raw is False or raw == "off" else _whole_number(1, _MAX_DAYS)(raw)


def _log(raw: object) -> str:
    if raw not in ("text", "json"):
        raise ValueError("it must be text or json")
    return str(raw)


def _file(raw: object) -> str:
    file = _text(raw)
    if file and not Path(file).name:
        raise ValueError("it must be a file")
    return file


def _switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, str) or raw not in _SWITCHES:
        raise ValueError("it must be on or off")
    return _SWITCHES[raw]


SETTINGS: dict[str, Callable[[object], object]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if get_origin(hint) is Annotated
}
