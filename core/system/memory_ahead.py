"""Memory for weights that becomes resident before it is needed.

The first use of a page costs the kernel its zeroing, and in a virtual machine often the host too:
seconds for each gigabyte of weights. A start imports modules for as long, which takes one core. So
another thread touches the memory meanwhile.

There is at most one such region: ``begin`` makes it, ``take`` cuts arrays from it, and ``end``
returns what is left. Any thread may call them. Linux only; elsewhere nothing is taken.
"""

from __future__ import annotations

import ctypes
import mmap
import threading

HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64, and on arm64 with base pages of 4 KiB."""

STEP = 2 * HUGE_PAGE
"""Bytes that are touched at a time. Meanwhile no other thread of the process can map memory."""

_POPULATE_WRITE = 23
"""Advice to ``madvise``. Kernels before 5.14 refuse it, and pages are touched at use."""


class MemoryAhead:
    """A region of zeroed memory in huge pages, and the thread that touches it. Any thread."""

    def __init__(self, num_bytes: int) -> None:
        """Begin. Raises OSError if there is no such address space, or no ``madvise``."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, num_bytes + HUGE_PAGE, flags=flags)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._start = -address % HUGE_PAGE
        self._end = self._start + num_bytes // HUGE_PAGE * HUGE_PAGE
        self._base = address
        # mmap.madvise would hold Python's lock meanwhile, and nothing would be imported
        self._advise = ctypes.CDLL(None, use_errno=True).madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._taken = self._start
        self._is_over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._touch, name="roseinfer-memory", daemon=True)
        self._thread.start()

    def take(self, num_bytes: int) -> tuple[mmap.mmap, int] | None:
        """Take so many bytes: the map and where they begin in it. None if too few are left.

        Call ``give_back`` with the same numbers when they are no longer used.
        """
        with self._lock:
            if self._is_over or num_bytes > self._end - self._taken:
                return None
            offset = self._taken
            self._taken += num_bytes
            return self._memory, offset

    def give_back(self, offset: int, num_bytes: int) -> None:
        """Return the pages that are wholly in what was taken to the system."""
        first = offset + (self._start - offset) % HUGE_PAGE
        last = self._whole(offset + num_bytes)
        if last > first:
            self._advise(self._base + first, last - first, mmap.MADV_DONTNEED)

    def end(self) -> None:
        """Stop, and return what was not taken to the system. Idempotent."""
        with self._lock:
            self._is_over = True
        self._thread.join()
        self.give_back(self._taken, self._end - self._taken)

    def _touch(self) -> None:
        position = self._start
        while not self._is_over and position < self._end:
            position = max(position, self._whole(self._taken))
            size = min(STEP, self._end - position)
            if self._advise(self._base + position, size, _POPULATE_WRITE):
                return
            position += size

    def _whole(self, offset: int) -> int:
        """Offset of the huge page that this offset lies in."""
        return offset - (offset - self._start) % HUGE_PAGE


_current: MemoryAhead | None = None


def begin(num_bytes: int) -> None:
    """Begin to touch memory for so many bytes. Ends what was begun before."""
    global _current  # noqa: PLW0603 - there is one start in a process
    end()
    if num_bytes < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    try:
        _current = MemoryAhead(num_bytes)
    except (OSError, AttributeError):  # then memory is touched when it is used
        _current = None


def current() -> MemoryAhead | None:
    """The region that arrays may be taken from, if there is one."""
    return _current


def end() -> None:
    """Return what was not taken. Idempotent."""
    global _current
    region, _current = _current, None
    if region is not None:
        region.end()


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``."""

_MOST_TRIM, _MOST_MMAP = 64 << 20, 32 << 20
"""To what glibc raises them itself on 64-bit systems."""


def return_end() -> None:
    """Return the end of the calling thread's heap. Without glibc there is no effect.

    The thresholds have their highest values then, as after a large load: glibc no longer raises
    them once one of them was set.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.mallopt(_TRIM_THRESHOLD, 0)
    libc.free(libc.malloc(1 << 16))  # too large for the lists of small blocks: joins the end
    libc.mallopt(_MMAP_THRESHOLD, _MOST_MMAP)
    libc.mallopt(_TRIM_THRESHOLD, _MOST_TRIM)
