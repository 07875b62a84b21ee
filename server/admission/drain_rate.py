"""DrainRate: how fast something is given back, measured."""

from __future__ import annotations

import math

TIME_CONSTANT = 10.0
"""Seconds after which a measurement counts a third."""


class DrainRate:
    """Exponentially decaying mean of units per second. Times are seconds of one clock.

    The mean is corrected for the time before the first measurement, in which nothing was seen
    (Kingma and Ba, "Adam", section 3).
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._first: float | None = None
        self._last = 0.0

    def add(self, amount: int, now: float) -> None:
        """Count ``amount`` units that were given back at ``now``."""
        if self._first is None:
            self._first = self._last = now
        self._rate = self._decayed(now) + amount / TIME_CONSTANT
        self._last = now

    def per_second(self, now: float) -> float | None:
        """The rate at ``now``; None before the first measurement."""
        if self._first is None:
            return None
        age = max(now - self._first, 1.0)  # one measurement says little about its own second
        return self._decayed(now) / -math.expm1(-age / TIME_CONSTANT)

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._last - now) / TIME_CONSTANT)
