"""Returns the free end of a thread's heap to the system.

``malloc_trim`` returns what is free between other things in every heap of glibc, but the end of
none except the main thread's. The end of another stays until memory is freed there while it is
longer than a threshold, which glibc raises up to 64 MiB as larger blocks come and go. After the
load of Gemma 3 270M the core thread's is 15 MiB long (``python -m benchmarks.resident``).
"""

from __future__ import annotations

import ctypes

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
