"""Lines of the log that could come thousands of times a second: at most one a minute, counted.

What a client or a shortage can cause in the loop, it causes as often as the loop turns: unbounded,
such a line fills a disk.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

QUIET_SECONDS = 60


@dataclass
class _Said:
    since: float
    more: int = 0


class Repeats:
    """Logs each message at once, and then at most once a minute, with how often it came."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # By the message without its facts: there are as many as the program has.
        self._said: dict[str, _Said] = {}

    def log(
        self, now: float, message: str, *facts: object, exc_info: BaseException | None = None
    ) -> None:
        """Log a warning, or count it. `now` is in monotonic seconds."""
        if said := self._said.get(message):
            said.more += 1
        else:
            self._said[message] = _Said(now)
            self._logger.warning(message, *facts, exc_info=exc_info)

    def count_up(self, now: float) -> None:
        """Log what came again within the last minute. To be called every second or so."""
        for message, said in list(self._said.items()):
            if now - said.since < QUIET_SECONDS:
                continue
            if said.more:
                again = "%d more within a minute of: %s"
                self._logger.warning(again, said.more, message.replace("%s", "…"))
                self._said[message] = _Said(now)
            else:
                del self._said[message]
