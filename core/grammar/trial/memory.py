"""Counts the memory of this process, in bytes. Linux only."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

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
