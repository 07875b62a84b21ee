"""History: when a sequence waited and ran, and in which company."""

from __future__ import annotations

import time
from bisect import bisect_right
from operator import itemgetter

from core.contract.messages import CacheMiss


class StepCounts:
    """Counts the steps of an engine and their sequences; a step costs about a microsecond.

    The core thread writes it; any thread reads it.
    """

    __slots__ = ("_peaks", "num_rows", "num_steps")

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_rows = 0
        """The sum of the sequences in all steps."""
        # steps with more sequences than every later one, as (number of the step, sequences)
        self._peaks: tuple[tuple[int, int], ...] = ()

    def count(self, num_rows: int) -> None:
        """Count a step of so many sequences."""
        self.num_steps += 1
        self.num_rows += num_rows
        peaks = self._peaks
        num_larger = len(peaks)
        while num_larger and peaks[num_larger - 1][1] <= num_rows:
            num_larger -= 1
        self._peaks = (*peaks[:num_larger], (self.num_steps, num_rows))

    def most_since(self, step: int) -> int:
        """The most sequences in a step after this one."""
        peaks = self._peaks
        index = bisect_right(peaks, step, key=itemgetter(0))
        return peaks[index][1] if index < len(peaks) else 0


class History:
    """Times and counts of one sequence. The core thread writes it; any thread reads it.

    Times are ``time.perf_counter()``. Steps are those of the engine while the sequence ran.
    """

    __slots__ = (
        "_first_step",
        "_rows_before",
        "_steps",
        "first_token_at",
        "max_rows",
        "miss",
        "num_rows",
        "num_steps",
        "started_at",
        "waited",
        "waited_before_first",
        "waiting_since",
    )

    def __init__(self) -> None:
        self.waiting_since: float | None = time.perf_counter()
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self.waited = 0.0  # seconds between a preemption and the next start
        self.waited_before_first = 0.0  # of these, those before the first token
        self.num_steps = self.num_rows = self.max_rows = 0  # before the last start
        self.miss: CacheMiss | None = None
        self._steps = StepCounts()
        self._first_step = self._rows_before = 0

    def start(self, miss: CacheMiss, steps: StepCounts) -> None:
        """It runs from the next step on. ``miss``: why no more of it was in the prefix cache.

        The first ``miss`` counts.
        """
        now = time.perf_counter()
        if self.started_at is None:
            self.started_at, self.miss = now, miss
        elif self.waiting_since is not None:
            self.waited += now - self.waiting_since
        self._steps = steps
        self._first_step, self._rows_before = steps.num_steps, steps.num_rows
        self.waiting_since = None

    def wait(self) -> None:
        """It waits again, if it does not wait already."""
        if self.waiting_since is None:
            self.num_steps, self.num_rows, self.max_rows = self.company()
            self.waiting_since = time.perf_counter()

    def first_token(self) -> None:
        """It has its first token."""
        self.first_token_at = time.perf_counter()
        self.waited_before_first = self.waited

    def company(self) -> tuple[int, int, int]:
        """Steps while it ran, the sum of their sequences, the most of them."""
        if self.waiting_since is not None:
            return self.num_steps, self.num_rows, self.max_rows
        return (
            self.num_steps + self._steps.num_steps - self._first_step,
            self.num_rows + self._steps.num_rows - self._rows_before,
            max(self.max_rows, self._steps.most_since(self._first_step)),
        )
