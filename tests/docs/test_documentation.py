"""README, the example of a configuration and docs/ agree with the code."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tomllib
from datetime import UTC, date, datetime

import click
import pytest

from orders import VERSION
from orders import settings as settings_module
from orders.domain import PERSONAL, SEARCHED, TEXTS, EventType, name_in_api
from orders.feed import End
from orders.files import rows
from orders.settings import DEFAULT_PLANS, SETTINGS, Settings
from orders.store.audit import SERVICE
from orders.web.api import PROTECTION
from orders.web.refusals import CODES, EXAMPLES, SERVER_ANSWERS
from schemas import imports, v1, v2
from tests.support.clocks import SetClock
from tests.support.machine import free_port
from tests.support.service import ROOT, SOURCE
from tests.support.stores import Store

README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = ROOT / ".ci"


def page(name):
    """Return the text of a page of docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def section(heading, text=README):
    """Return the text below a heading, up to the next of the same or a higher level."""
    level = heading.split(" ")[0]
    text = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"\n#{{2,{len(level)}}} ", text, maxsplit=1)[0]


def shell_blocks(heading):
    """Return the blocks of shell commands below a heading of README."""
    return re.findall(r"```sh\n(.*?)```", section(heading), re.DOTALL)


def table(text):
    """Return the rows of the first table in a text, without its head."""
    rows = text[text.index("\n|") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def code(cell):
    """Return the text in backticks."""
    return re.findall(r"`([^`]*)`", cell)[0]


@pytest.mark.parametrize("heading", ["## Run it", "## Test it"])
def test_the_heading_has_exactly_one_command(heading):
    (block,) = shell_blocks(heading)
    assert len(block.strip().splitlines()) == 1


def test_readme_has_at_most_200_lines():
    assert len(README.splitlines()) <= 200


@pytest.mark.slow
def test_the_run_command_starts_a_demo_whose_lines_and_readmes_work_from_a_fresh_clone(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True, capture_output=True)
    (command,) = shell_blocks("## Run it")
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("ORDERS_")
    }
    environment |= {"ORDERS_PORT": str(free_port())}
    service = subprocess.Popen(
        ["bash", "-c", command],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        printed = ""
        while "/v2/usage" not in printed:
            line = service.stdout.readline()
            assert line, printed
            printed += line
        curls = re.findall(r"^  (curl .*)$", printed, re.MULTILINE)
        answers = [curl(line, environment, "--retry 5 --retry-connrefused") for line in curls]
        environment |= {
            "STORE_URL": f"http://127.0.0.1:{environment['ORDERS_PORT']}",
            "STORE_KEY": re.findall(r"\bsok_\w+", printed)[0],
        }
        rows = {what: code(line) for what, line in table(section("## The API"))}
        statuses = {
            what: curl(line, environment, "-o /dev/null -w '%{http_code}'")
            for what, line in rows.items()
        }
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.communicate()
    assert len(answers) == 6
    assert '"complete":' in answers[0]
    assert '"id":41,' in answers[1]
    assert "order_already_shipped" in answers[4]
    assert "RateLimit" in answers[5]
    # The demo's lines have shipped order 41.
    assert statuses == dict.fromkeys(rows, "200") | {
        "place an order": "201",
        "ship it": "409",
        "cancel it": "409",
    }


def curl(line, environment, options):
    """Run a line in bash as it stands, with options of curl after it; return the output."""
    return subprocess.run(
        ["bash", "-c", f"{line} -s {options}"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_the_table_of_settings_has_all_settings_and_defaults():
    rows = {code(name): default for name, default, _ in table(page("settings.md"))}
    assert set(rows) == {settings_module.PREFIX + name.upper() for name in SETTINGS}
    in_words = {
        "ORDERS_BASE_URL": "http://HOST:PORT/v1",
        "ORDERS_BACKUPS_KEEP": "7 daily, 4 weekly",
        "ORDERS_FORGET_AFTER_DAYS": "off",
        "ORDERS_METRICS": "off",
        "ORDERS_UNIQUE_REFERENCES": "off",
    }
    for name, default in rows.items():
        value = getattr(Settings(), name.removeprefix("ORDERS_").lower())
        if not default.startswith("`"):
            assert not value, name
        elif name != "ORDERS_INSTANCE":
            assert code(default) == in_words.get(name, str(value)), name


def test_the_table_of_errors_has_all_codes():
    rows = table(section("## Errors", page("api.md")))
    answers = [*SERVER_ANSWERS.values(), *EXAMPLES.values()]
    codes = {each.code: each.status for each in answers}
    listed = [(name, int(status)) for status, cell, _ in rows for name in re.findall(r"\w+", cell)]
    assert sorted(listed) == sorted(codes.items())
    assert set(codes) == set(CODES)


def names(cell):
    """Return all names in backticks."""
    return re.findall(r"`([A-Za-z]+)`", cell)


def fields(schema):
    return [field.data_key for field in schema().fields.values()]


def test_the_table_of_pages_has_all_parameters():
    rows = table(section("### Pages", page("api.md")))
    assert sorted(name for row in rows for name in names(row[0])) == sorted(
        fields(v2.OrdersQuerySchema)
    )
    (sorts,) = [row[1] for row in rows if row[0] == "`sort`"]
    assert {each.removeprefix("-") for each in v2.SORTS} <= set(names(sorts))


def test_the_tables_of_fields_have_all_fields():
    api = page("api.md")
    rows = table(section("## From version 1 to version 2", api))
    both = names(next(one for one, two in rows if two.startswith("the same, with")))
    added = names(next(two for one, two in rows if one == "—"))
    assert both == fields(v1.OrderSchema)
    assert both + added == fields(v2.OrderSchema)
    described = re.findall(r"^- `(\w+)`", section("## Version 2", api), re.MULTILINE)
    assert described == added[3:], "the list of fields in docs/api.md"
    ((one, two),) = [row for row in rows if row[0].startswith("NewOrder takes")]
    assert names(one) == fields(v1.NewOrderSchema)
    assert names(one) + names(two) == fields(v2.NewOrderSchema)
    ((one, two),) = [row for row in rows if row[0].startswith("a shipment takes")]
    assert names(one) == fields(v1.ShipmentSchema)
    assert names(one) + names(two) == fields(v2.ShipmentSchema)
    patch = section("### Changes", api).split(";")[0]
    assert set(fields(v2.OrderPatchSchema)) == set(names(patch))


def test_the_parameters_of_an_import_are_all_described():
    (listed,) = re.findall(r"are parameters \((.*?)\)", page("import.md"), re.DOTALL)
    assert names(listed) == fields(imports.ImportQuerySchema)


def test_which_texts_are_forgotten_and_which_are_searched_is_said_in_each_place(tmp_path):
    app = Store(Settings(instance=tmp_path), SetClock()).app
    document = app.test_client().get("/openapi/v2.json").get_json()
    parameters = document["paths"]["/store/orders"]["get"]["parameters"]
    personal = {
        "docs/privacy.md": page("privacy.md").split("\n|")[0],
        "forget --help": app.cli.commands["orders"].commands["forget"].help.split(":")[0],
        "openapi/webhooks.py": document["webhooks"]["order.forgotten"]["post"]["summary"],
    }
    searched = {
        "docs/api.md": re.search(r"\| `search` .*", page("api.md"))[0],
        "schemas/v2.py": next(each for each in parameters if each["name"] == "search")[
            "description"
        ],
    }
    for texts, said in ((PERSONAL, personal), (SEARCHED, searched)):
        for place, text in said.items():
            named = {each for each in TEXTS if re.search(rf"\b{name_in_api(each)}\b", text)}
            assert named == {*texts}, place


def test_the_columns_of_files_are_all_described():
    text = section("## Import and export", page("commands.md")).split("```")[0]
    assert set(rows.ORDERS.kinds) <= set(names(text))


@pytest.mark.parametrize("name", ["api.md", "webhooks.md"])
def test_all_types_of_events_are_described(name):
    assert set(re.findall(r"`(order\.\w+)`", page(name))) == {*EventType}


def test_why_streams_end_and_who_changes_orders_but_keys_is_described(tmp_path):
    store = Store(Settings(instance=tmp_path), SetClock())
    for text in (page("api.md"), store.anonymous().get("/openapi/v2.json").text):
        assert {*End, "cli", SERVICE} <= set(re.findall(r"`(\w+)`", text))


def test_the_table_of_plans_has_the_default_plans():
    api = page("api.md")
    rows = {name: (minute, day) for name, minute, day in table(section("## Limits", api))}
    assert rows == {
        plan.name: (f"{plan.per_minute:,}", f"{plan.per_day:,}")
        if plan.per_minute
        else ("set when the key is issued", "set when the key is issued")
        for plan in DEFAULT_PLANS.values()
    }


def test_the_table_of_commands_has_all_commands_each_of_which_has_help(tmp_path):
    cli = Store(Settings(instance=tmp_path), SetClock()).app.cli.commands
    groups = {name: group for name, group in cli.items() if isinstance(group, click.Group)}
    assert all(group.help for group in groups.values())
    commands = {
        f"{group} {name}": command.help
        for group, each in groups.items()
        for name, command in each.commands.items()
    }
    commands |= {name: cli[name].help for name in ("at-boot", "audit", "status")}
    assert all(commands.values())
    listed = []
    for cell, _ in table(page("commands.md")):
        first, *others = re.findall(r"`([^`]*)`", cell)
        listed += [first, *(f"{first.split()[0]} {name}" for name in others)]
    assert sorted(listed) == sorted(commands)


def test_the_example_of_a_configuration_shows_every_setting_at_its_default(tmp_path):
    example = (ROOT / "instance" / "config.example.toml").read_text(encoding="utf-8")
    shown = "\n".join(
        line.removeprefix("# ")
        for line in example.splitlines()
        if re.match(r"# (\w+ = |\[plans)", line)
    )
    config = tomllib.loads(shown)
    plans = config.pop("plans")
    assert set(config) == set(SETTINGS) - {"instance"}
    (tmp_path / "config.toml").write_text(shown, encoding="utf-8")
    loaded = settings_module.load({"ORDERS_INSTANCE": str(tmp_path)})
    for name in config:
        assert getattr(loaded, name) == getattr(Settings(), name), name
    assert plans["free"] == {"per_minute": 60, "per_day": 1000}


# What some systems lack, or have otherwise.
DIFFERS = re.compile(
    r"^\s*(?:import|from) (fcntl|filelock|grp|msvcrt|pwd|resource|signal|termios)\b"
    r"|\b(AF_UNIX|O_DIRECTORY|O_NOFOLLOW|O_BINARY|st_uid|st_gid)\b"
    r"|\b(os\.(?:name|uname|umask|kill|fork|fsync|fdatasync|pread|pwrite|get\w*[ug]id|f?l?chown))\b"
    r"|\b(sys\.platform|platform\.system|chmod)\b",
    re.MULTILINE,
)


def test_both_systems_have_the_same_functions():
    definition = re.compile(r"^(?:def )?([a-zA-Z]\w*)(?:\(| = )", re.MULTILINE)
    posix, windows = (
        set(definition.findall((SOURCE / "orders" / "system" / f"{name}.py").read_text("utf-8")))
        for name in ("posix", "windows")
    )
    assert posix == windows
    assert "make_private_file" in posix


def test_only_one_package_asks_which_system_it_is():
    asked = {
        path.relative_to(SOURCE).as_posix(): found
        for path in (*SOURCE.glob("orders/**/*.py"), *SOURCE.glob("schemas/*.py"))
        if (found := ["".join(each) for each in DIFFERS.findall(path.read_text(encoding="utf-8"))])
    }
    assert {"fcntl", "pwd", "signal", "os.fsync", "AF_UNIX"} <= set(asked["orders/system/posix.py"])
    # The HTTP server, a library of its own, has its sockets and signals.
    known = ("orders/system/", "orders/server/")
    assert {path for path in asked if not path.startswith(known)} == set(), asked


def test_the_architecture_names_every_module_and_no_other():
    picture = page("architecture.md").split("```")[1]
    for folder in (SOURCE / "orders", SOURCE / "schemas"):
        for module in folder.rglob("*.py"):
            if module.name != "__init__.py" and "migrations" not in module.parts:
                assert re.search(rf"\b{module.name}\b", picture), module
    for name in re.findall(r"\b\w+\.py\b", picture):
        folders = ("orders/**/", "schemas/", "tests/bench/**/", "")
        assert any([*top.glob(folder + name)] for folder in folders for top in (SOURCE, ROOT)), name


def test_contributing_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = {*re.findall(r"(?:orders|schemas|tests|instance|docs)/[\w/.]*\w", text)}
    assert len(named) > 20
    made = {"instance/config.toml"}
    exist = {name for name in named if any((top / name).exists() for top in (SOURCE, ROOT))}
    assert named - made - exist == set()
    assert set(re.findall(r"\.ci/\w+", text)) <= {f".ci/{each.name}" for each in CI.iterdir()}


# What others define, what a shop or a build makes, and a URL.
ELSEWHERE = {
    "HEADER_FIELD_RE",
    "counters.db",
    "instance/config.toml",
    "build/dist",
    "build/executable",
    "redis://",
}


def project_files():
    """Return the texts of the modules of Python and of the console, by their paths."""
    tops = {SOURCE: ("app.py", "orders/**/*.py", "orders/**/*.js", "schemas/*.py")}
    tops.setdefault(ROOT, ())
    tops[ROOT] += ("tests/**/*.py",)
    return {
        path.relative_to(top).as_posix(): path.read_text(encoding="utf-8")
        for top, patterns in tops.items()
        for pattern in patterns
        for path in top.glob(pattern)
    }


def named(text):
    """Yield what a page has in backticks, with {a,b} as two names; not its blocks of code."""
    for words in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        before, *alternatives, after = re.split(r"[{},]", words) if "{" in words else (words, "")
        yield from (before + each + after for each in alternatives or [""])


def is_defined(name, texts):
    definition = rf"^ *(?:export )?(?:(?:class|def|function|const) {name}\b|{name}(?:: .*)? = )"
    return any(re.search(definition, text, re.MULTILINE) for text in texts)


def is_there(name, files):
    """Whether a path, a module's NAME, a class' member or a constant is somewhere; others pass."""
    if re.fullmatch(r"\.?\w[\w.]*/[\w./]+|\w+\.(?:py|js|toml)", name):
        ends = (f"/{name}", f"/{name}.py")
        exists = any((top / name).exists() for top in (SOURCE, ROOT))
        return exists or any(f"/{path}".endswith(ends) for path in files)
    if match := re.fullmatch(r"(\w+)\.(\w+)", name):
        owner, member = match.groups()
        holds = re.compile(rf"^class {owner}\b", re.MULTILINE)
        texts = [
            text
            for path, text in files.items()
            if f"/{owner}/" in path or f"/{owner}." in path or holds.search(text)
        ]
        return is_defined(member, texts)
    if re.fullmatch(r"(?!ORDERS_)_?[A-Z]\w*", name):
        return is_defined(name, files.values())
    return True


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md", "docs/decisions.md"])
def test_what_pages_for_developers_name_is_there(name):
    files = project_files()
    names = {*named((ROOT / name).read_text(encoding="utf-8"))} - ELSEWHERE
    assert {each for each in names if not is_there(each, files)} == set()


@pytest.mark.parametrize("name", ["domain.Gone", "store/gone", "gone.py", "_GONE", "Shop.gone"])
def test_a_name_that_is_nowhere_is_found(name):
    assert not is_there(name, project_files())


def test_the_changelog_is_by_release_and_its_newest_is_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.+)$", text, re.MULTILINE)
    dated = [each for each in releases if each != "Unreleased"]
    assert releases in (dated, ["Unreleased", *dated])
    for release in dated:
        _, day = re.fullmatch(r"(\d+\.\d+\.\d+) \((.+)\)", release).groups()
        assert date.fromisoformat(day)
    assert dated[0].split()[0] == VERSION
    assert {*re.findall(r"^### (.+)$", text, re.MULTILINE)} <= {"Added", "Changed", "Fixed"}


class Project:
    """A project with the real .ci/release, in a git of its own. Its steps only note their names."""

    def __init__(self, folder):
        self._root = folder / "project"
        self._notes = folder / "notes"
        self._version = self._root / "orders" / "__init__.py"
        for each in (self._version.parent, self._root / ".ci"):
            each.mkdir(parents=True)
        shutil.copy(CI / "release", self._root / ".ci")
        for name in ("run", "package", "executable", "windows", "pythons", "proofs"):
            self.step(name, "exit 0")
        self.git("init", "--quiet")

    def step(self, name, then):
        path = self._root / ".ci" / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self._notes}\n{then}\n')
        path.chmod(0o755)

    def write(self, version, heading):
        self._version.write_text(f'VERSION = "{version}"\n', encoding="utf-8")
        changes = f"# Changes\n\n## {heading}\n\nIt is faster.\n"
        (self._root / "CHANGELOG.md").write_text(changes, encoding="utf-8")

    def commit(self):
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "A version.")

    def release(self, *arguments):
        return self._run(".ci/release", *arguments)

    def git(self, *arguments):
        return self._run("git", *arguments)

    def steps(self):
        """Return the steps that ran."""
        return self._notes.read_text().split("\n")[:-1]

    def _run(self, *command):
        roles = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
        environment = {**os.environ, **{f"GIT_{each}": "somebody" for each in roles}}
        done = subprocess.run(
            command, cwd=self._root, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_a_version_is_released_once_from_a_clean_commit_with_todays_changelog(project):
    project.write("2.0.1", "2.0.0 (2026-11-22)")
    check = project.release("--check")
    assert "the first heading of CHANGELOG.md is '## 2.0.0 (2026-11-22)'" in check
    today = f"2.0.1 ({datetime.now(UTC).date()})"
    project.write("2.0.1", today)
    assert "there are uncommitted changes" in project.release("--check")
    project.commit()
    assert project.release("--check") == "2.0.1 can be released.\n"
    project.git("tag", "v2.0.1")
    assert "v2.0.1 has a tag already" in project.release("--check")
    project.write("2.1", today)
    assert "not like 1.0.0: '2.1'" in project.release("--check")


def test_a_release_runs_all_in_order_and_tags_only_what_passed(project):
    project.write("2.0.1", f"2.0.1 ({datetime.now(UTC).date()})")
    project.step("windows", "exit 1")
    project.commit()
    project.release()
    before = ["run", "package", "executable", "executable --windows", "windows"]
    assert project.steps() == before
    assert project.git("tag") == ""
    project.step("windows", "touch new")
    project.commit()
    assert "something changed while the tests ran" in project.release()
    assert project.git("tag") == ""
    project.step("windows", "exit 0")
    project.commit()
    assert "v2.0.1 is tagged" in project.release()
    assert project.steps()[-7:] == [*before, "pythons", "proofs"]
    assert "It is faster." in project.git("tag", "--list", "-n9")


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def anchors(text):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path):
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        target, _, anchor = link.partition("#")
        linked = path.parent / target if target else path
        assert linked.exists(), link
        assert not anchor or anchor in anchors(linked.read_text(encoding="utf-8")), link


def test_each_page_of_docs_is_linked_from_readme():
    for path in PAGES:
        if path.parent.name == "docs":
            assert f"](docs/{path.name})" in README, path.name


SECURITY = page("security.md")
RISKS = re.findall(r"^### (API\d+:2023) .*?\n(.*?)(?=^##)", SECURITY, re.MULTILINE | re.DOTALL)
TESTS = re.compile(r"\]\(\.\./tests/\w+/test_\w+\.py\)")


def test_every_risk_has_tests_that_show_what_is_done():
    # That the files exist is tested for all links.
    assert [name for name, _ in RISKS] == [f"API{number}:2023" for number in range(1, 11)]
    for name, text in RISKS:
        assert TESTS.search(text), name


def test_the_security_page_names_the_headers_that_every_answer_has():
    for name, value in PROTECTION.items():
        assert f"`{name}: {value}`" in SECURITY
