"""The end of a thread's heap is returned, which glibc keeps after large blocks."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, os, threading
from pathlib import Path
from core.system.memory_ahead import return_end

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.mallopt(-3, 32 << 20)
libc.mallopt(-1, 64 << 20)

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def run():
    block = libc.malloc(16 << 20)
    ctypes.memset(block, 1, 16 << 20)
    libc.free(block)
    libc.malloc_trim(0)
    kept = resident()
    return_end()
    print(kept - resident())

thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_malloc_trim_keeps_is_returned():
    root = Path(__file__).parents[3]
    done = subprocess.run(  # noqa: S603 - of this file
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 15 << 20
