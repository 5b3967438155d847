"""How Redis is spoken to: scripts over connections that are kept, in bounded time.

redis-py makes connections, signs in, packs and parses. What its client adds to each command (a pool
with a lock, retries, measurements) takes longer than all that, and is left out here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from redis import Connection, ConnectionPool
    from redis.commands.core import Script

# A request waits no longer than this for a connection, and no longer for the answer: Redis gives it
# in less than a millisecond, or something is wrong.
TIMEOUT_SECONDS = 0.1
# What Redis refuses for a while: it loads, is a replica, full, can't save, or is busy.
_PASSES = re.compile(
    r"\b(LOADING|READONLY|OOM|MISCONF|BUSY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS)\b"
)


class RedisAway(Exception):
    """Redis does not count just now. The message says why, in one line."""


class RedisRefused(RedisAway):
    """Redis is there, and refuses what is asked of it: that does not mend itself."""


def connection_options() -> dict[str, Any]:
    """Return what redis-py is to know of each connection, beside its address."""
    # An extra: only who counts in Redis has it.
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return {
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "socket_timeout": TIMEOUT_SECONDS,
        # What fails is counted in memory at once.
        "retry": Retry(NoBackoff(), 0),
        # Every Redis and Valkey speaks it, and nothing here needs more.
        "protocol": 2,
    }


class RedisLink:
    """Runs scripts in Redis, each over a connection that no other thread uses meanwhile."""

    def __init__(self, pool: ConnectionPool) -> None:
        """Take what makes connections. Opens none."""
        from redis import exceptions  # an extra, as above

        self._pool = pool
        self._idle: list[Connection] = []
        self._no_script = exceptions.NoScriptError
        self._errors = (exceptions.RedisError, OSError)
        self._refusals = (
            exceptions.AuthenticationError,
            exceptions.AuthorizationError,
            exceptions.ResponseError,
            exceptions.InvalidResponse,
        )

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> list[int]:
        """Run a script that gives numbers; return them.

        Raises:
            RedisAway: there was no connection or no answer within `TIMEOUT_SECONDS`, or none
                that is one.
        """
        connection = None
        try:
            connection = self._connection()
            answer = self._evaluate(connection, script, (len(keys), *keys, *arguments))
        except self._errors as error:
            if connection is not None:
                connection.disconnect()
            raise self._told(error) from None
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().disconnect()

    def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not self._is_stale(connection):
                return connection
            connection.disconnect()
        connection = cast("Connection", self._pool.make_connection())
        connection.connect()
        return connection

    def _is_stale(self, connection: Connection) -> bool:
        # Nothing was asked: what can be read is the end of a connection that Redis has closed.
        try:
            return bool(connection.can_read())
        except self._errors:
            return True

    def _evaluate(self, connection: Connection, script: Script, rest: tuple[Any, ...]) -> list[int]:
        connection.send_command("EVALSHA", script.sha, *rest)
        try:
            return cast("list[int]", connection.read_response())
        except self._no_script:
            # Redis was started since, or told to forget. It knows the script from now on.
            connection.send_command("EVAL", script.script, *rest)
            return cast("list[int]", connection.read_response())

    def _told(self, error: Exception) -> RedisAway:
        words = " ".join(f"{getattr(error, 'status_code', None) or ''} {error}".split())
        if isinstance(error, self._refusals) and not _PASSES.search(words):
            return RedisRefused(words)
        return RedisAway(words or type(error).__name__)
