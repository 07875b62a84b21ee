"""What every command does before it begins and when it has ended."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from core.machine import num_cores
from server import heap, logs


def set_up(log_level: str, log_format: str = "text", *, computes: bool = True) -> None:
    """Log to stderr. If the command computes, also set what torch reads when it is imported."""
    heap.collect_rarely()
    logs.log_to_stderr(log_level, log_format)
    if not computes:
        return

    # Read when torch is imported. Its own default counts simultaneous threads and ignores quotas.
    os.environ.setdefault("OMP_NUM_THREADS", str(num_cores()))

    # OpenMP threads spin while they wait for each other. GNU's default spins so long that steps
    # get far slower on a machine with other work; not spinning is slow on an idle one.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def exit_process(code: int) -> NoReturn:
    """Exit without finalizing the interpreter.

    Everything has been stopped by now, or is stuck in a long call. Finalizing would wait for a
    core thread that is still in a step, and let libraries that leak at exit print warnings.
    """
    logs.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
