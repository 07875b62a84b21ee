"""Gate: how many connections are open, and which of them makes room for a new one.

Up to ``limit`` connections have requests; probes of health are answered above it, other requests
get 503. From ``limit`` open connections on, each new one ends the oldest that has waited for
MIN_AGE without a request (silent, idle, or with an incomplete head). One that has not been
answered yet is answered 503. If there is none, NUM_SPARE more are accepted: new connections wait
on the ``Porch``. With TLS they are opened, and beyond that they wait in the listener's backlog.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable

logger = logging.getLogger("roseinfer.connections")

NUM_SPARE = 32
"""Connections above the limit: those that wait on the porch, and probes."""

MIN_AGE = 0.15
"""Seconds that a connection waits at least before it is ended for a new one.

A client that connects many times before it sends takes this long. A probe of health may wait this
long behind silent connections.
"""

NUM_CANDIDATES = 16
"""Waiting connections that are looked at to find one without unread bytes."""

LOG_INTERVAL = 10.0
"""Seconds between two log lines about the same condition."""


class Place:
    """One connection's place at the gate. Event loop only."""

    __slots__ = ("_gate", "_is_taken", "_make_way", "fileno", "since")

    def __init__(self, gate: Gate, fileno: int) -> None:
        self._gate = gate
        self._is_taken = True
        self._make_way: Callable[[], None] | None = None
        self.fileno = fileno
        self.since = 0.0

    def wait(self, make_way: Callable[[], None]) -> None:
        """No request is on the connection from now on. ``make_way`` ends it."""
        self._make_way = make_way
        self._gate.start_waiting(self)

    def stop_waiting(self) -> None:
        """A request is on the connection, or an answer to the last one."""
        self._gate.stop_waiting(self)

    @property
    def is_crowded(self) -> bool:
        """Whether the connection should end after its next answer."""
        return self._gate.is_crowded

    @property
    def is_above_limit(self) -> bool:
        """Whether too many connections have requests."""
        return self._gate.is_above_limit

    def make_way(self) -> None:
        """End the connection."""
        assert self._make_way is not None
        self._make_way()

    def leave(self) -> None:
        """The connection has ended. Idempotent."""
        if self._is_taken:
            self._is_taken = False
            self._make_way = None
            self._gate.leave(self)


class Gate:
    """Counts connections. Event loop only."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._num_open = 0
        self._waiting: dict[Place, None] = {}  # the oldest first
        self._leaving: set[Place] = set()
        self._log = ThrottledLog(clock)
        self.on_room: Callable[[], None] = lambda: None
        """Called when a connection has ended."""

    @property
    def num_open(self) -> int:
        """Connections that have a descriptor."""
        return self._num_open

    @property
    def num_leaving(self) -> int:
        """Open connections that are ending to make room."""
        return len(self._leaving)

    @property
    def is_full(self) -> bool:
        """Whether as many connections are open as the limit says."""
        return self._num_open >= self.limit

    @property
    def is_crowded(self) -> bool:
        """Whether connections should end after their next answer."""
        return self._num_open * 4 >= self.limit * 3

    @property
    def is_above_limit(self) -> bool:
        """Whether too many connections have requests."""
        is_above = self._num_open - len(self._waiting) - len(self._leaving) > self.limit
        if is_above:
            self.log_refusal()
        return is_above

    def log_refusal(self) -> None:
        """Log that a connection is answered 503, once in a while."""
        self._log.warning(
            "All %d connections are in use (--max-connections): new ones are answered 503",
            self.limit,
        )

    def has_room(self) -> bool:
        """Whether the connection that knocks may be accepted. If not, it may make room."""
        if self._num_open < self.limit + NUM_SPARE:
            return True
        self.make_room()
        return False

    def enter(self, fileno: int) -> Place:
        """Count a connection that is opened. The caller has seen that there is a descriptor."""
        if self._num_open - len(self._leaving) >= self.limit:
            self.make_room()
        self._num_open += 1
        return Place(self, fileno)

    def seconds_to_room(self) -> float:
        """Seconds after which it is worth asking ``has_room`` again."""
        for place in self._waiting:
            return max(MIN_AGE / 4, place.since + MIN_AGE - self._clock())
        return MIN_AGE

    def start_waiting(self, place: Place) -> None:
        """Put the place at the end of those that wait."""
        self._waiting.pop(place, None)
        self._waiting[place] = None
        place.since = self._clock()

    def stop_waiting(self, place: Place) -> None:
        """Keep the place's connection, whatever comes."""
        self._waiting.pop(place, None)

    def leave(self, place: Place) -> None:
        """Count a connection that has ended."""
        self._waiting.pop(place, None)
        self._leaving.discard(place)
        self._num_open -= 1
        self.on_room()

    def make_room(self) -> bool:
        """End the oldest connection that has waited for MIN_AGE. False: there is none."""
        now = self._clock()
        for index, place in enumerate(self._waiting):
            if index == NUM_CANDIDATES or now - place.since < MIN_AGE:
                return False
            if not has_unread_bytes(place.fileno):
                break
        else:
            return False
        del self._waiting[place]
        self._leaving.add(place)
        self._log.warning(
            "All %d connections are in use (--max-connections): idle ones are closed", self.limit
        )
        place.make_way()
        return True


class ThrottledLog:
    """Warnings, each text once in LOG_INTERVAL seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}

    def warning(self, text: str, *values: object) -> None:
        """Log, unless the same text was logged a short while ago."""
        now = self._clock()
        if now - self._last.get(text, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._last[text] = now
            logger.warning(text, *values)


def has_unread_bytes(fileno: int) -> bool:
    """Whether the kernel holds bytes, or the end of the stream, that were not read yet."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))
