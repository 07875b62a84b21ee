"""Stall detector of the event loop: how late a periodic timer is while requests are open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from core.observe.histogram import GAP_SECONDS, Histogram
from schemas.stats import LoopStats

BEAT = 0.02  # seconds between two beats of the timer
LIMIT = 0.05  # seconds of lateness that count as a stall


class StallWatch:
    """Counts the stalls of one event loop. Event loop only.

    A block of the loop of ``LIMIT + BEAT`` seconds is always counted, one of less than ``LIMIT``
    never. A stall is *busy* if the loop's own thread computed for more than ``LIMIT`` of it. Any
    other stall is a wait for the interpreter lock or for a processor.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        """``cpu_time`` returns the seconds that this thread has computed."""
        self._loop = loop
        self._cpu_time = cpu_time
        self._num_open = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._cpu_before = 0.0
        self._num_stalls = self._num_busy_stalls = 0
        self._longest = self._longest_busy = 0.0
        self.lateness = Histogram(GAP_SECONDS)  # seconds by which the beats were late

    @property
    def stats(self) -> LoopStats:
        return LoopStats(
            num_stalls=self._num_stalls,
            longest_stall_ms=round(self._longest * 1000),
            num_busy_stalls=self._num_busy_stalls,
            longest_busy_stall_ms=round(self._longest_busy * 1000),
        )

    def enter(self) -> None:
        self._num_open += 1
        if self._timer is None:
            self._schedule()

    def leave(self) -> None:
        """A request has ended. The next beat stops the timer if it was the last one."""
        self._num_open -= 1

    def _schedule(self) -> None:
        self._cpu_before = self._cpu_time()
        self._due = self._loop.time() + BEAT
        self._timer = self._loop.call_at(self._due, self._beat)

    def _beat(self) -> None:
        lateness = self._loop.time() - self._due
        self.lateness.observe(max(lateness, 0.0))
        if lateness > LIMIT:
            self._num_stalls += 1
            self._longest = max(self._longest, lateness)
            busy = min(lateness, self._cpu_time() - self._cpu_before)
            if busy > LIMIT:
                self._num_busy_stalls += 1
                self._longest_busy = max(self._longest_busy, busy)
        self._timer = None
        if self._num_open:
            self._schedule()
