"""A proof's command line: options and a seed, a report, the violations, an exit status."""

from __future__ import annotations

import argparse
import inspect
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

# One fault may make thousands.
SHOWN = 20


def run(prove: Callable[..., Iterable[str]], **options: str) -> int:
    """Run a proof in a new folder as the command line says; return 1 if it found violations.

    `prove` takes the folder and its options by name, and returns violations. `options` describe
    each of them; types and default values are those of its parameters.
    """
    module = prove.__globals__
    program = module["__spec__"].name.removesuffix(".__main__")
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=module["__doc__"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parameters = inspect.signature(prove).parameters
    for name, words in options.items():
        _add(parser, name, parameters[name].default, words)
    chosen = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        violations = list(prove(Path(folder), **chosen))
    for violation in violations[:SHOWN]:
        print(f"VIOLATED    {violation}")
    print(f"{'violations':<12}{len(violations):,}")
    return 1 if violations else 0


def violated(violations: Mapping[str, object]) -> list[str]:
    """Return the possible violations that occurred."""
    return [violation for violation, is_so in violations.items() if is_so]


def table(facts: dict[str, str]) -> str:
    return "\n".join(f"{name:<11} {fact}" for name, fact in facts.items())


def _add(parser: argparse.ArgumentParser, name: str, default: Any, words: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    if default is False:
        parser.add_argument(flag, action="store_true", help=words)
    else:
        words = f"{words} (default: {default:,})" if default != "" else words
        parser.add_argument(flag, type=type(default), default=default, help=words)
