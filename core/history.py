"""History: when a sequence waited and ran, and in which company."""

from __future__ import annotations

import time

from core.contract.messages import CacheMiss


class History:
    """Times and counts of one sequence. The core thread writes it; any thread reads it.

    Times are ``time.perf_counter()``. The engine counts steps itself: ``num_steps`` that the
    sequence was in, the sum of their sequences ``num_rows``, the most of them ``max_rows``.
    """

    __slots__ = (
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
        self.num_steps = 0
        self.num_rows = 0
        self.max_rows = 0
        self.miss: CacheMiss | None = None

    def start(self, miss: CacheMiss) -> None:
        """It runs. ``miss`` says why more of it was not in the prefix cache; the first counts."""
        now = time.perf_counter()
        if self.started_at is None:
            self.started_at, self.miss = now, miss
        elif self.waiting_since is not None:
            self.waited += now - self.waiting_since
        self.waiting_since = None

    def wait(self) -> None:
        """It waits again."""
        if self.waiting_since is None:
            self.waiting_since = time.perf_counter()

    def first_token(self) -> None:
        """It has its first token."""
        self.first_token_at = time.perf_counter()
        self.waited_before_first = self.waited
