"""Timetable: when each request of a run is due."""

from __future__ import annotations

import random
from itertools import accumulate

from bench.settings import Pace


class Timetable:
    """When each request is due, on the caller's clock."""

    def __init__(self, pace: Pace, num_requests: int, seed: str) -> None:
        """``seed`` determines random arrivals."""
        rng = random.Random(f"{seed}/arrivals")
        rate = pace.rate
        gaps = [
            rng.expovariate(rate) if rate is not None else pace.interval
            for _ in range(num_requests - 1)
        ]
        self._gaps = [0.0, *gaps]
        self._offsets = list(accumulate(self._gaps))
        self._is_absolute = pace.schedule == "absolute"
        self.is_closed = pace.concurrency is not None and not any(self._gaps)
        """Whether a request is due as soon as an earlier one has ended."""

    def due(self, index: int, *, start: float, last: float) -> float:
        """Return when request ``index`` is due; ``last`` is when the previous submission ended."""
        if self._is_absolute:
            return start + self._offsets[index]
        return last + self._gaps[index] if index else start
