"""Returns freed memory to the system after large requests.

glibc keeps what threads have freed in the heap of each thread: 130 MiB after two requests of 0.8 MB
to /tokenize on the built-in model (tests/bystander measures it). ``malloc_trim`` returns it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

ENOUGH = 64 * 2**20
"""Bytes by which the process has to have grown since memory was last returned."""

DELAY = 0.2
"""Seconds from the end of a request until the process is measured: further ones may end."""

_STATM = Path("/proc/self/statm")


class Trimmer:
    """Watches the memory of the process while requests end. Event loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        trim: Callable[[], None] | None = None,
        measure: Callable[[], int] | None = None,
    ) -> None:
        """``loop`` is the running one unless given.

        ``trim`` returns memory and runs in a worker thread. None: glibc's, where it exists.
        ``measure`` returns the resident bytes of the process.
        """
        self._loop = loop or asyncio.get_running_loop()
        self._trim = trim or _glibc_trim()
        self._measure = measure or _resident_bytes
        self._least = 0
        self._num_requests = 0
        self._was_busy = False
        self._timer: asyncio.TimerHandle | None = None

    def request_started(self) -> None:
        self._num_requests += 1

    def request_ended(self) -> None:
        self._num_requests -= 1
        if self._timer is None and self._trim is not None:
            self._timer = self._loop.call_later(DELAY, self._look)

    def _look(self) -> None:
        self._timer = None
        is_busy = self._num_requests > 0
        has_grown = self._measure() - self._least >= ENOUGH
        # What other requests held at the last trim counts as in use, but is free now.
        if has_grown or (self._was_busy and not is_busy):
            self._was_busy = is_busy
            done = self._loop.run_in_executor(None, self._trim_and_measure)
            done.add_done_callback(self._end)

    def _trim_and_measure(self) -> int:
        """Return memory, and the resident bytes afterwards. Called in a worker thread."""
        assert self._trim is not None
        self._trim()
        return self._measure()

    def _end(self, done: asyncio.Future[int]) -> None:
        if not done.cancelled():
            self._least = done.result()


def _glibc_trim() -> Callable[[], None] | None:
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if malloc_trim is None or not _STATM.exists() else lambda: malloc_trim(0)


def _resident_bytes() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
