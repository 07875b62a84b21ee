"""How far the load of a model has come: told where the work is done, shown elsewhere.

The code that loads says ``begin`` and ``advance``. Whoever wants to know runs the load within
``reporting`` and reads the LoadProgress from any thread. Without a listener nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class LoadStage(NamedTuple):
    """What is being done, and how much of it is: ``total`` is 0 if that is not known.

    ``is_bytes`` says that both count bytes.
    """

    name: str
    done: int = 0
    total: int = 0
    is_bytes: bool = False


class LoadProgress:
    """The present stage of one load. Any thread may read and write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
            self._now = self._now._replace(done=self._now.done + count)

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
