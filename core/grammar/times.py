"""GrammarTimes: how long grammars take to compile, and their masks to fill."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from core.contract.errors import RequestCancelled
from core.observe.histogram import SECONDS, Counts, Histogram


class GrammarTimes:
    """Wall times in seconds. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compilations = Histogram(SECONDS)
        self._masks = [Histogram(SECONDS)]

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count the time inside, in which a new grammar is compiled or refused."""
        start, is_cancelled = time.monotonic(), False
        try:
            yield
        except RequestCancelled:
            is_cancelled = True
            raise
        finally:
            if not is_cancelled:
                with self._lock:
                    self._compilations.observe(time.monotonic() - start)

    def mask_histogram(self) -> Histogram:
        """Return a histogram for one thread that fills masks."""
        histogram = Histogram(SECONDS)
        with self._lock:
            self._masks.append(histogram)
        return histogram

    @property
    def compilations(self) -> Counts:
        with self._lock:
            return self._compilations.read()

    @property
    def masks(self) -> Counts:
        """Of all threads. A value is the time to fill the masks of some sequences together."""
        with self._lock:
            first, *others = [histogram.read() for histogram in self._masks]
        for other in others:
            first += other
        return first
