"""Flask commands, run in the test's process."""

from __future__ import annotations


def command(store, *arguments):
    """Run a command over a store; return click's result."""
    return store.app.test_cli_runner().invoke(args=list(map(str, arguments)))


def said(store, *arguments):
    """Run a command that must work and has no data to print; return its one message."""
    done = command(store, *arguments)
    assert done.exit_code == 0, done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    return done.stderr


def rejected(store, *arguments):
    """Run a command that must fail, in one line and without a traceback; return the line."""
    done = command(store, *arguments)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.endswith("\n")
    return done.stderr


def names_in(folder):
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}
