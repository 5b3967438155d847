"""The server's edge in short: `tests.proofs.edge` does the same with more, and takes times."""

from __future__ import annotations

from math import inf

import pytest

from tests.proofs.edge.__main__ import deadlines, endless, fill, single_read
from tests.proofs.edge.doors import attacks, hold_the_doors
from tests.proofs.edge.followers import followed_without_end, keys_for
from tests.proofs.edge.slow_readers import read_beside
from tests.proofs.edge.stopping import stop_under_load
from tests.support.service import Service, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """A store of 20,000 orders, whose list is long."""
    folder = tmp_path_factory.mktemp("edge") / "instance"
    fill(folder, 20_000, seed=1)
    return folder


def test_beside_clients_that_hog_connections_all_are_served_and_nothing_leaks(instance):
    with running(instance, **deadlines(4)) as service:
        few = attacks(endless(service, "read"), 0.1)
        assert hold_the_doors(service, single_read(service), few, 4, longest=(inf, inf)) == []


def test_slow_readers_get_their_lists_whole_and_take_little_memory(instance):
    with running(instance) as service:
        read = single_read(service)
        assert read_beside(service, read, 20, 2_000_000, most_times_slower=inf) == []


def test_followers_who_never_read_hold_up_neither_others_nor_a_stop(instance):
    service = Service(instance)
    keys = keys_for(service, 200)
    assert followed_without_end(service, keys, 200, (inf, inf), places=400) == []


def test_a_stop_under_load_drops_nothing_that_had_arrived(instance):
    service = Service(instance)
    assert stop_under_load(service, single_read(service), 2_000_000) == []
