"""Flask commands, run in the test's process."""

from __future__ import annotations

import re


def without_store(text):
    """Return the output of a command, without the line naming a non-default store."""
    return re.sub(r"\AStore: .+\n", "", text)


def messages(done):
    """Return a command's standard error, without the store's name."""
    return without_store(done.stderr)


def command(store, *arguments):
    """Run a command over a store; return click's result."""
    return store.app.test_cli_runner().invoke(args=list(map(str, arguments)))


def said(store, *arguments):
    """Run a command that must succeed and prints no data; return its one message."""
    done = command(store, *arguments)
    assert done.exit_code == 0, done.stderr
    assert (done.stdout, messages(done).count("\n")) == ("", 1)
    return messages(done)


def rejected(store, *arguments):
    """Run a command that must fail, in one line and without a traceback; return the line."""
    done = command(store, *arguments)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    message = messages(done)
    assert (done.stdout, message.count("\n")) == ("", 1), message
    assert message.startswith("Error: ")
    assert message.endswith("\n")
    return message


def names_in(folder):
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}
