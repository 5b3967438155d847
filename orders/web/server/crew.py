"""The threads that answer: two of which one leads the loop, and workers for what waits.

The leader polls, and answers what is short. Should such an answer take longer than
PATIENCE_SECONDS, the other takes the lead, so that one thread polls whatever happens; the first
hands its answer to the loop when it is made, and stands by from then on. While it is not back,
the leader itself answers nothing that could block.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from orders.web.server.answers import Exchange

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.02
# How long a signal may wait that the system gave to another thread than the first.
_SIGNAL_SECONDS = 1.0


class Lead:
    """Which of two threads leads."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._lock = threading.Lock()
        self._leader: int | None = None
        # Counts the beginnings and the ends of answers: odd during one.
        self._task = 0
        self._begun = threading.Event()
        self._ended = threading.Event()
        # Whether another thread would take over from the leader.
        self.has_standby = False
        # An exception that no turn may raise.
        self.failure: BaseException | None = None
        self.takeovers = 0

    def run(self) -> None:
        """Lead, or stand by to lead, until the end. Called by both threads."""
        try:
            with self._lock:
                self._leader = self._leader or threading.get_ident()
            while not self._ended.is_set():
                if self.is_mine():
                    self._turn()
                else:
                    self._stand_by()
        except BaseException as error:
            log.critical("The server's loop failed.", exc_info=error)
            self.failure = error
            self.end()

    def is_mine(self) -> bool:
        """Return whether the calling thread leads."""
        return self._leader == threading.get_ident()

    def during(self, answer: Callable[[], None]) -> bool:
        """Answer; return whether the calling thread still leads. If not, it must touch nothing."""
        self._task += 1
        if not self._begun.is_set():
            self._begun.set()
        answer()
        with self._lock:
            if not self.is_mine():
                return False
            self._task += 1
            return True

    def wait(self) -> None:
        """Wait for the end."""
        # Handlers of signals run in this thread, which a signal that another one got does not wake.
        while not self._ended.wait(_SIGNAL_SECONDS):
            pass

    def end(self) -> None:
        """Have both threads end."""
        self._ended.set()
        self._begun.set()

    def _stand_by(self) -> None:
        self.has_standby = True
        task = self._task
        if task % 2 == 0:
            # Nothing is being answered: sleep until something is.
            self._begun.clear()
            if self._task == task and not self._ended.is_set():
                self._begun.wait()
        elif not self._ended.wait(PATIENCE_SECONDS):
            self._take_over(task)

    def _take_over(self, task: int) -> None:
        with self._lock:
            if self._task == task:
                self._task += 1
                self._leader = threading.get_ident()
                self.has_standby = False
                self.takeovers += 1


class Workers:
    """Threads that answer what waits for a lock, a disk or another server.

    Of those that rest, the one that was last busy goes first: its memory and its connection to the
    database serve again, and the others need none.
    """

    def __init__(
        self, count: int, answered: Callable[[Exchange], None], name: str = "worker"
    ) -> None:
        # Those that nobody has begun to answer, oldest first.
        self.waiting: deque[Exchange] = deque()
        self._lock = threading.Lock()
        self.resting: list[threading.Semaphore] = []
        self._answered = answered
        for number in range(count):
            self._start(f"{name}-{number}")

    def submit(self, exchange: Exchange) -> None:
        """Have an exchange answered, unless it is taken back from `waiting`."""
        with self._lock:
            self.waiting.append(exchange)
            if self.resting:
                self.resting.pop().release()

    def _start(self, name: str) -> None:
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        called = threading.Semaphore(0)
        try:
            while True:
                exchange = self._next(called)
                if exchange is None:
                    called.acquire()
                else:
                    self._answer(exchange)
        except BaseException as error:
            log.critical("A thread that answers requests is replaced.", exc_info=error)
            self._replace()

    def _answer(self, exchange: Exchange) -> None:
        try:
            exchange.answer()
        except BaseException:
            exchange.fail()
            raise
        finally:
            self._answered(exchange)

    def _replace(self) -> None:
        try:
            self._start(threading.current_thread().name)
        except (RuntimeError, MemoryError):  # the system gives none: this one goes on
            self._work()

    def _next(self, called: threading.Semaphore) -> Exchange | None:
        """Return an exchange to be answered; where there is none, have the caller called."""
        with self._lock:
            try:
                return self.waiting.popleft()
            except IndexError:
                self.resting.append(called)
                return None
