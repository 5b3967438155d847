"""Compares the clients, the readers, the receivers and the store of a run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.proofs.cluster.readers import misdelivered
from tests.proofs.cluster.run import LOADS, TYPES, Findings
from tests.proofs.core import checks
from tests.proofs.core.followers import unlike_the_log
from tests.proofs.core.history import Kind, Operation

# PostgreSQL may commit a killed process's work just after the kill.
_GRACE_SECONDS = 2.0
# So long after a kill, clients know what it broke off.
_KNOWN_WITHIN_SECONDS = 2.0
# nginx names all processes that it sent a request to, and at last the answer's request id.
_SENT_TWICE = re.compile(r'"[^"]*" \d+ \d+ [\d.]+s \S+, \S+ \S+, \S+ (\w+)$', re.MULTILINE)


def complaints(found: Findings, clients: int) -> list[str]:
    """Return all broken promises."""
    history = list(whole_history(found))
    return [
        *found.complaints,
        *(each for load in found.shopping for each in load.complaints),
        *checks.complaints(history, found.contents),
        *(each for reader in found.readers for each in unlike_the_log(reader.seen, found.contents)),
        *_deliveries(found),
        *_tries(found),
        *_unanswered(found, LOADS * clients),
    ]


def whole_history(found: Findings) -> Iterator[Operation]:
    """Return the operations of all customers.

    What nginx sent to a second process may have been done by the first: those requests are there
    twice, once as unknown.
    """
    twice = set(_SENT_TWICE.findall(found.access_log))
    for load in found.shopping:
        for each in load.history:
            if each.is_unknown:
                each.ended += _GRACE_SECONDS
            yield each
            if each.request_id in twice:
                yield dataclasses.replace(
                    each, status=None, order=None, request_id=None, replayed=False
                )


def _deliveries(found: Findings) -> Iterator[str]:
    for receiver, types in zip(found.receivers, TYPES, strict=True):
        yield from misdelivered(receiver.received, types, found.kills, found.contents)


def _tries(found: Findings) -> Iterator[str]:
    """Complain of tries that failed: the receivers are always there."""
    for (endpoint, what), count in found.tries.items():
        if what != "delivered":
            yield f"{count} tries to deliver to webhook {endpoint} failed: {what}"


def _unanswered(found: Findings, most_at_once: int) -> Iterator[str]:
    """Complain of requests that were not answered though no process had been killed."""
    after: Counter[float] = Counter()
    for at, kind, why in unanswered(found):
        if found.away and found.away[0] <= at <= found.away[1] + _KNOWN_WITHIN_SECONDS:
            continue
        kills = [kill for kill in found.kills if 0 <= at - kill < _KNOWN_WITHIN_SECONDS]
        if not kills:
            yield f"{kind} was answered with {why}, and none was killed"
        else:
            after[kills[-1]] += 1
    for count in after.values():
        if count > most_at_once:
            yield f"{count} requests were not answered after one kill"


def unanswered(found: Findings) -> Sequence[tuple[float, Kind, str]]:
    """Return when, what and why, of what customers sent and the service did not answer."""
    return sorted(each for load in found.shopping for each in load.unanswered)
