"""Progress: how long the engine has been busy with one step."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Says how long the current work of the core thread has taken.

    The core thread writes, any thread reads. Each field is assigned in one operation.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        self._start: float | None = None
        self.longest = 0.0
        """Seconds of the longest work that has ended."""

    def begin(self) -> None:
        """Work begins; earlier work has ended."""
        now = self._clock()
        if self._start is not None:
            self.longest = max(self.longest, now - self._start)
        self._start = now

    def end(self) -> None:
        """The thread waits for work."""
        self.begin()
        self._start = None

    @property
    def seconds(self) -> float:
        """Seconds since the current work began; 0 if there is none."""
        start = self._start
        return 0.0 if start is None else self._clock() - start
