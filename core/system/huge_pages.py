"""Zeroed host memory in huge pages, for arrays that every step reads from end to end.

A step reads all weights. In pages of 4 KiB a core spends much of that time on page table walks,
above all in a virtual machine, where a walk costs twice. Linux backs private memory with pages of
2 MiB where a program asks for it (``/sys/kernel/mm/transparent_hugepage/enabled`` is ``madvise`` or
``always``). Elsewhere this memory has ordinary pages and everything works the same.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref

import numpy as np
import torch

from core.system import memory_ahead
from core.system.memory_ahead import HUGE_PAGE

_ALIGNMENT = 64
"""Bytes of a cache line. Every array starts at one."""

_CHUNK = 32 << 20
"""Bytes of address space from which small arrays are cut, so that they share huge pages."""


class Arena:
    """Cuts arrays from chunks of huge pages. Any thread.

    A chunk lives as long as one of its arrays, or until the next chunk is begun. Memory of a chunk
    becomes resident when it is first written, a huge page at a time.
    """

    def __init__(self, chunk_bytes: int = _CHUNK) -> None:
        self._chunk_bytes = chunk_bytes
        self._rest = torch.empty(0, dtype=torch.uint8)
        self._lock = threading.Lock()

    def zeros(self, num_bytes: int) -> torch.Tensor:
        """Return ``num_bytes`` zeroed bytes (uint8) that start at a cache line.

        Raises OSError if the address space is exhausted.
        """
        padded = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        ready = _taken_ahead(padded) if padded else None
        if ready is not None:
            return ready[:num_bytes]
        if padded >= self._chunk_bytes:
            return _mapped(padded)[:num_bytes]
        with self._lock:
            if padded > len(self._rest):
                self._rest = _mapped(self._chunk_bytes)
            taken, self._rest = self._rest[:num_bytes], self._rest[padded:]
        return taken


def zeros(num_bytes: int) -> torch.Tensor:
    """Return ``num_bytes`` zeroed bytes (uint8) of the process' arena. Any thread. See Arena."""
    return _ARENA.zeros(num_bytes)


def _taken_ahead(num_bytes: int) -> torch.Tensor | None:
    """Memory that was made resident in advance. Its pages are returned with its last view."""
    region = memory_ahead.current()
    if region is None or (taken := region.take(num_bytes)) is None:
        return None
    memory, offset = taken
    data = np.frombuffer(memory, dtype=np.uint8, count=num_bytes, offset=offset)
    weakref.finalize(data, region.give_back, offset, num_bytes).atexit = False
    with torch.inference_mode(False):
        return torch.from_numpy(data)


def _mapped(num_bytes: int) -> torch.Tensor:
    """Map zeroed memory that starts at a huge page. It is unmapped with its last view."""
    if not num_bytes:
        return torch.empty(0, dtype=torch.uint8)
    memory = mmap.mmap(-1, num_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    with torch.inference_mode(False):  # a chunk outlives the caller's mode
        data = torch.from_numpy(np.frombuffer(memory, dtype=np.uint8))
        start = -data.data_ptr() % HUGE_PAGE
        return data[start : start + num_bytes]


_ARENA = Arena()
