"""Timer: one deadline at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls back once, unless it is stopped or started again before. Event loop only."""

    __slots__ = ("_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether it will call back."""
        return self._handle is not None

    def start(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so many seconds, and not when it was to call back before."""
        self.stop()
        self._handle = self._loop.call_later(seconds, self._call, callback)

    def stop(self) -> None:
        """Do not call back. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _call(self, callback: Callable[[], None]) -> None:
        self._handle = None
        callback()
