"""Returns freed memory to the system after large requests.

glibc keeps what threads have freed in the heap of each thread: 130 MiB after two requests of 0.8 MB
to /tokenize on the built-in model (tests/bystander measures it). ``malloc_trim`` returns it.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

ENOUGH = 2**20
"""Bytes of ended requests after which memory is returned."""

DELAY = 0.2
"""Seconds until then: further requests may end, and the last answer is freed."""


class Trimmer:
    """Counts the bytes of ended requests. Event loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        trim: Callable[[], None] | None = None,
    ) -> None:
        """``loop`` is the running one unless given.

        ``trim`` returns memory and runs in a worker thread. None: glibc's, where it exists.
        """
        self._loop = loop or asyncio.get_running_loop()
        self._trim = trim or _glibc_trim()
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, num_bytes: int) -> None:
        """A request with a body of so many bytes has ended."""
        self._num_bytes += num_bytes
        if self._num_bytes >= ENOUGH and self._timer is None and self._trim is not None:
            self._timer = self._loop.call_later(DELAY, self._start)

    def _start(self) -> None:
        assert self._trim is not None
        self._timer, self._num_bytes = None, 0
        self._loop.run_in_executor(None, self._trim)


def _glibc_trim() -> Callable[[], None] | None:
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if malloc_trim is None else lambda: malloc_trim(0)
