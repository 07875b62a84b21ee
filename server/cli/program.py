"""The set-up of a process before its command, and its end."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from core.machine import num_cores
from server.app import heap
from server.observe.logging import log_to_stderr
from server.settings.settings import Settings

SWITCH_INTERVAL = 0.0005
"""Seconds after which the core thread releases the GIL to the event loop."""


def set_up_server(settings: Settings) -> None:
    """Prepare the process of one server, before torch is imported.

    ``roseinfer serve`` and a replica of Ray Serve begin with it.
    """
    heap.collect_rarely()  # until the model is loaded
    set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL)


def set_up(log_level: str, log_format: str = "text", *, computes: bool = True) -> None:
    """Log to stderr. If the command computes, also set what torch reads when it is imported."""
    log_to_stderr(log_level, log_format)
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
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
