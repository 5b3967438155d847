"""What of waitress is used beyond its documentation: a release that changes it is read first."""

from __future__ import annotations

import hashlib
import inspect

import pytest
from waitress import buffers, parser, rfc7230, task, utilities

# The names that `orders.web.server` uses, overrides or relies on.
USED = {
    parser.HTTPRequestParser: "f2b09de756c1",
    parser.get_header_lines: "968a7db45a59",
    parser.crack_first_line: "5ef0eba51166",
    parser.split_uri: "2959428735d4",
    buffers.OverflowableBuffer: "545747c4f2e2",
    utilities.Error: "374c72f58aca",
    utilities.BadRequest: "6502b0d69646",
    task.Task: "407d67e51639",
    task.WSGITask: "9d14cf12c73a",
    rfc7230: "0f5fe455e089",
}


@pytest.mark.parametrize("used", USED, ids=lambda each: each.__name__)
def test_waitress_is_as_it_was_when_this_server_was_written(used):
    digest = hashlib.sha256(inspect.getsource(used).encode()).hexdigest()[:12]
    assert digest == USED[used], "read what changed there, and what orders/web/server makes of it"
