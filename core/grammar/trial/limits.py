"""Limits that the system enforces on a trial process. Linux only."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from core.grammar.trial.memory import data_bytes
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
