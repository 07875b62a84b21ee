"""Limits that the system enforces on a trial process. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from core.grammar.trial.messages import Setup

NICE = 5
"""Added to the process's niceness: a trial competes with the server's own work."""


@contextlib.contextmanager
def limited(setup: Setup) -> Iterator[None]:
    """Have the system end this process when the block takes too long or too much memory.

    SIGPROF ends it after its CPU time, SIGALRM after its wall time. Python raises MemoryError where
    an allocation fails, Rust aborts.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + setup.num_bytes, hard))
    signal.setitimer(signal.ITIMER_PROF, setup.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, setup.max_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def prefer_to_die() -> None:
    """Yield to the server: in CPU time, and when the system runs out of memory."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def data_bytes() -> int:
    """Bytes of private writable mappings, which RLIMIT_DATA counts."""
    _, _, rest = Path("/proc/self/status").read_text().partition("VmData:")
    return int(rest.split()[0]) * 1024


def resident_bytes() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_SIZE


def allocated_bytes() -> Callable[[], int]:
    """Return a function that counts the bytes of live allocations in this process.

    It needs glibc's ``mallinfo2``; without it, it counts resident bytes.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return resident_bytes
    mallinfo.restype = _MallInfo

    def allocated() -> int:
        info = mallinfo()
        return int(info.uordblks + info.hblkhd)

    return allocated
