"""Version 2's document as strictly checked TypeScript types, and under two linters."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.support.service import ROOT

HERE = ROOT / "tests" / "api" / "typescript"
# Where .ci/npm puts the packages.
BUILD = ROOT / "build" / "npm"


def run(program, *arguments, **environment):
    """Run a program of a package; return its exit status and what it printed."""
    done = subprocess.run(
        [str(BUILD / "node_modules" / ".bin" / program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=BUILD,
        env={**os.environ, "REDOCLY_TELEMETRY": "off", **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def document(service, tmp_path):
    """Save version 2's document; return the file's path."""
    path = tmp_path / "v2.json"
    path.write_bytes(service.request("GET", "/openapi/v2.json").data)
    return path


@pytest.mark.typescript
def test_a_typed_client_compiles_strictly_and_receives_what_its_types_promise(service, document):
    source = BUILD / "morning"
    source.mkdir(exist_ok=True)
    (source / "package.json").write_text('{"type": "module"}')
    (source / "morning.ts").write_text((HERE / "morning.ts").read_text())
    status, said = run("openapi-typescript", document, "-o", source / "v2.d.ts")
    assert status == 0, said
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node")
    assert run("tsc", *options, source / "morning.ts") == (0, "")
    secret = service.issue()
    done = subprocess.run(
        ["node", str(source / "morning.js")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "STORE_URL": service.url, "STORE_KEY": secret},
    )
    assert done.returncode == 0, done.stderr
    morning = json.loads(done.stdout)
    order_id, key_id = morning.pop("id"), morning.pop("key")
    assert order_id >= 1 <= key_id
    assert morning.pop("seen")[-3:] == ["order.placed", "order.changed", "order.shipped"]
    assert morning.pop("shipped") >= 1
    assert morning == {
        "note": "Ring twice.",
        "codes": ["shipped", "order_not_found"],
        "refused": "order_already_shipped",
        "found": [order_id],
    }


@pytest.mark.linters
def test_linters_miss_only_the_contact_and_license_which_each_shop_chooses(document):
    (BUILD / "spectral.yaml").write_text('extends: ["spectral:oas"]\n')
    _, found = run("spectral", "lint", "-r", BUILD / "spectral.yaml", "-f", "json", "-q", document)
    assert [each["code"] for each in json.loads(found[found.index("[") :])] == ["info-contact"]
    _, found = run("redocly", "lint", "--extends=recommended", "--format=json", document)
    problems = json.loads(re.search(r"^\{.*^\}", found, re.DOTALL | re.MULTILINE)[0])["problems"]
    assert [each["ruleId"] for each in problems] == ["info-license"]
