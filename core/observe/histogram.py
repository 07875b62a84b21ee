"""Histogram: how many observed values lie below each of some bounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """The counts of a histogram.

    ``counts[i]`` values were at most ``bounds[i]`` and above the bound before it; the last count is
    of those above all bounds. ``total`` is the sum of the values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def num_values(self) -> int:
        return sum(self.counts)

    def __add__(self, other: Counts) -> Counts:
        """The counts of both. Their bounds must be equal."""
        assert self.bounds == other.bounds
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Counts(self.bounds, counts, self.total + other.total)


class Histogram:
    """Counts values in a list of numbers. One thread observes, any thread reads.

    A value costs a binary search and two additions.
    """

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Iterable[float]) -> None:
        """``bounds`` ascend."""
        self._bounds = tuple(bounds)
        assert all(a < b for a, b in zip(self._bounds, self._bounds[1:], strict=False))
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that occurred so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def read(self) -> Counts:
        """The counts so far. Any thread; ``total`` may lack a value that is being counted."""
        return Counts(self._bounds, tuple(self._counts), self._total)


SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Bounds for the durations of steps and of their parts."""

GAP_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 40.0),
)
"""Bounds for the time between two tokens."""

POWERS = tuple(float(2**n) for n in range(15))
"""Bounds for numbers of sequences and tokens: 1 to 16,384."""


class StepHistograms:
    """Of an engine's steps. The core thread observes, any thread reads.

    Only steps that computed something count. ``stages`` are the seconds of each stage of a step,
    ``step`` is their sum. ``inter_token`` are the seconds between two tokens of a sequence.
    """

    __slots__ = ("inter_token", "num_sequences", "num_tokens", "stages", "step")

    def __init__(self, stages: Iterable[str]) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in stages}
        self.step = Histogram(SECONDS)
        self.num_sequences = Histogram(POWERS)
        self.num_tokens = Histogram(POWERS)
        self.inter_token = Histogram(GAP_SECONDS)
