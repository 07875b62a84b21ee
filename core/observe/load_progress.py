"""LoadProgress: the stage of the load of a model, and how much of that is done.

The code that loads calls ``begin`` and ``advance``. An observer runs the load within ``reporting``
and reads the LoadProgress from any thread. Without an observer these calls do nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class LoadStage(NamedTuple):
    """A stage of a load: ``done`` of ``total`` are done. ``total`` is 0 if it is not known.

    ``is_bytes`` says that both count bytes.
    """

    name: str
    done: int = 0
    total: int = 0
    is_bytes: bool = False


class LoadProgress:
    """The present stage of one load. Any thread may read and write."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._now = LoadStage("starting")

    @property
    def now(self) -> LoadStage:
        """The present stage."""
        return self._now

    def begin(self, name: str, total: int = 0) -> None:
        """Begin a stage; the one before it has ended."""
        self.show(LoadStage(name, 0, total))

    def advance(self, count: int = 1) -> None:
        """Count more as done."""
        with self._lock:
            self.show(self._now._replace(done=self._now.done + count))

    def show(self, stage: LoadStage) -> None:
        """Replace the present stage."""
        with self._lock:
            self._now = stage


_listener: ContextVar[LoadProgress | None] = ContextVar("load_progress", default=None)


@contextmanager
def reporting(progress: LoadProgress) -> Iterator[None]:
    """Report what this thread loads within the block."""
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> LoadProgress | None:
    """The progress of the load that this thread does, for other threads that work for it."""
    return _listener.get()


def begin(name: str, total: int = 0) -> None:
    """Begin a stage of the load that this thread does."""
    if (progress := _listener.get()) is not None:
        progress.begin(name, total)


@contextmanager
def within(name: str, total: int = 0) -> Iterator[None]:
    """A stage within another one, which goes on afterwards."""
    progress = _listener.get()
    if progress is None:
        yield
        return
    outer = progress.now
    progress.begin(name, total)
    try:
        yield
    finally:
        progress.show(outer)


def advance(count: int = 1) -> None:
    """Count more as done."""
    if (progress := _listener.get()) is not None:
        progress.advance(count)


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
