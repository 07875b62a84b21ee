"""Stages: how long the parts of a load took."""

from __future__ import annotations

import time


class Stages:
    """Seconds since the last end of a stage, by the stage's name. One thread."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._start = self._last = time.monotonic()

    def end(self, name: str) -> None:
        """End a stage, which began when the one before it ended."""
        now = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now

    def __str__(self) -> str:
        """The whole and its parts: ``2.9 s: imports 1.4, weights 0.3``."""
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self._seconds.items())
        return f"{self._last - self._start:.1f} s: {parts}"
