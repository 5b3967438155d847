"""What of waitress is used beyond its documentation: a release that changes it is read first."""

from __future__ import annotations

import inspect
import zlib

import pytest
from waitress import buffers, parser, receiver, task, utilities

# The names that `orders.server` uses, overrides or relies on, with checksums of their sources.
USED = {
    parser.HTTPRequestParser: 2774035122,
    buffers.OverflowableBuffer: 3056012551,
    utilities.Error: 26497355,
    utilities.BadRequest: 778089191,
    task.Task: 3914860882,
    task.WSGITask: 999256053,
    receiver.FixedStreamReceiver: 3893812950,
}


@pytest.mark.parametrize("used", USED, ids=lambda each: each.__name__)
def test_waitress_is_as_it_was_when_this_server_was_written(used):
    checksum = zlib.crc32(inspect.getsource(used).encode())
    assert checksum == USED[used], "read what changed there, and what orders/server makes of it"
