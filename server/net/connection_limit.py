"""ConnectionLimit: how many connections are open, and which of them ends for a new one.

Up to ``limit`` connections have requests. RESERVE more are opened: health probes are answered on
them, other requests get 503. From ``limit`` open connections on, each new one ends the oldest that
has waited for MIN_AGE without a request (silent, idle, or with an incomplete head). Where there is
none and the reserve is used up, the oldest connection that only waits for its client to read a
refusal is ended, and new ones wait in the listener's backlog.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger("roseinfer.connections")

RESERVE = 32  # connections above the limit: probes, and requests that are answered 503
MIN_AGE = 0.15  # seconds before a waiting one is ended for a new one; a probe may wait this long
LOG_INTERVAL = 10.0  # seconds between two log lines about the same condition
OTHER_DESCRIPTORS = 64  # for everything but connections: the model's files, pipes, logs
FEWEST = 8  # connections that are served however low the limit of descriptors is


@dataclass(slots=True, eq=False)
class Slot:
    """One connection's part of the limit. Event loop only."""

    limit: ConnectionLimit
    fileno: int
    since: float = 0.0
    end: Callable[[], object] = lambda: None

    def wait(self, end: Callable[[], object]) -> None:
        """No request is on the connection from now on. ``end`` ends it for a new one."""
        self._move(self.limit.waiting, end)

    def linger(self, end: Callable[[], object]) -> None:
        """The connection has its last answer. ``end`` ends it before the client has read that."""
        self._move(self.limit.lingering, end)

    def stop_waiting(self) -> None:
        """A request is on the connection, or an answer to the last one."""
        self._move(None, lambda: None)

    def leave(self) -> None:
        """The connection has ended. Idempotent."""
        self.stop_waiting()
        if self in self.limit.open:
            self.limit.open.discard(self)
            self.limit.leaving.discard(self)
            self.limit.on_room()

    def _move(self, idle: dict[Slot, None] | None, end: Callable[[], object]) -> None:
        self.limit.waiting.pop(self, None)
        self.limit.lingering.pop(self, None)
        self.end, self.since = end, self.limit.clock()
        if idle is not None and self in self.limit.open:
            idle[self] = None


class ConnectionLimit:
    """Counts connections. Event loop only."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.clock = clock
        self.open: set[Slot] = set()  # those that have a descriptor
        self.waiting: dict[Slot, None] = {}  # the oldest first
        self.lingering: dict[Slot, None] = {}  # the oldest first
        self.leaving: set[Slot] = set()
        self.on_room: Callable[[], None] = lambda: None  # called when a connection has ended
        self._warned: dict[str, float] = {}  # texts, and when they were logged

    @property
    def is_crowded(self) -> bool:
        """Whether connections should end after their next answer."""
        return len(self.open) * 4 >= self.limit * 3

    @property
    def is_exceeded(self) -> bool:
        """Whether too many connections have requests."""
        num_idle = len(self.waiting) + len(self.lingering) + len(self.leaving)
        is_above = len(self.open) - num_idle > self.limit
        if is_above:
            self.warn(
                "All %d connections are in use (--max-connections): new ones are answered 503",
                self.limit,
            )
        return is_above

    def has_room(self) -> bool:
        """Whether a connection may be accepted. If not, some may end soon."""
        if len(self.open) < self.limit + RESERVE:
            return True
        if not self._end_waiting() and self.lingering:
            self._end(next(iter(self.lingering)))
        return False

    def enter(self, fileno: int) -> Slot:
        """Count a connection, for which there is room. At the limit, another one ends."""
        if len(self.open) - len(self.leaving) >= self.limit:
            self._end_waiting()
        slot = Slot(self, fileno)
        self.open.add(slot)
        return slot

    def warn(self, text: str, *values: object) -> None:
        """Log, unless the same text was logged less than LOG_INTERVAL ago."""
        now = self.clock()
        if now - self._warned.get(text, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._warned[text] = now
            logger.warning(text, *values)

    def _end_waiting(self) -> bool:
        """End the oldest connection if it has waited for MIN_AGE. False: there is none."""
        slot = next(iter(self.waiting), None)
        if slot is None or self.clock() - slot.since < MIN_AGE or has_unread_bytes(slot.fileno):
            return False
        self.warn(
            "All %d connections are in use (--max-connections): idle ones are closed", self.limit
        )
        self._end(slot)
        return True

    def _end(self, slot: Slot) -> None:
        end = slot.end
        slot.stop_waiting()
        self.leaving.add(slot)
        end()


def has_unread_bytes(fileno: int) -> bool:
    """Whether the kernel holds bytes, or the end of the stream, that were not read yet."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems refuse an infinite one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def possible_connections(wanted: int, descriptor_limit: int, *, each: int = 1) -> int:
    """Connections that can be served, ``wanted`` at most. A request takes ``each`` descriptors."""
    return min(wanted, max(FEWEST, (descriptor_limit - OTHER_DESCRIPTORS - RESERVE) // each))


def possible_limit(wanted: int, each: int) -> ConnectionLimit:
    """The limit with the descriptors that the process may have; logs if they are too few."""
    descriptors = raise_descriptor_limit()
    possible = possible_connections(wanted, descriptors, each=each)
    if possible < wanted:
        logger.warning(
            "%d connections are served, not %d: the process may have %d descriptors (ulimit -n)",
            possible,
            wanted,
            descriptors,
        )
    return ConnectionLimit(possible)
