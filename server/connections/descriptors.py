"""File descriptors: the process's limit, and how many connections it leaves room for."""

from __future__ import annotations

import contextlib
import resource

from server.connections.gate import NUM_SPARE

RESERVE = 64
"""Descriptors for everything but connections: the model's files, pipes, logs."""

FEWEST = 8
"""Connections that are served however low the limit is."""


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit to the hard one. Returns the limit; None if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems refuse an infinite one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return None if soft == resource.RLIM_INFINITY else soft


def connection_limit(wanted: int, descriptor_limit: int | None, *, each: int = 1) -> int:
    """Connections that can be served: ``wanted``, or fewer if there are too few descriptors.

    ``each`` is how many descriptors one with a request takes.
    """
    if descriptor_limit is None:
        return wanted
    return min(wanted, max(FEWEST, (descriptor_limit - RESERVE - NUM_SPARE) // each))
