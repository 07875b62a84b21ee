"""What a server process holds: KV cache blocks, descriptors, threads, processes, memory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.support.process import ServerProcess

MIB = 2**20

TOTALS = ("num_steps", "num_preemptions", "num_aborts", "num_failed_steps", "num_refused")
"""Counters of /stats that only grow; so do names that end in ``_tokens`` and ``event_loop``."""


@dataclass(frozen=True)
class Footprint:
    """Read from /stats and /proc. ``gauges`` are the counters of /stats that must come back."""

    gauges: dict[str, Any]
    num_descriptors: int
    num_threads: int
    num_children: int
    memory: int

    @classmethod
    def of(cls, server: ServerProcess) -> Footprint:
        pids = server.pids
        return cls(
            gauges=gauges(server.stats()),
            num_descriptors=sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
            num_threads=sum(int(status(pid, "Threads")) for pid in pids),
            num_children=len(children(server.pid)),
            memory=memory(server.pid),
        )


def gauges(stats: dict[str, Any]) -> dict[str, Any]:
    """The entries of /stats that describe the present."""
    return {
        name: value
        for name, value in stats.items()
        if name not in TOTALS and not name.endswith("_tokens") and name != "event_loop"
    }


def status(pid: int, name: str) -> str:
    """A line of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.split()[0]
    raise KeyError(name)


def memory(pid: int) -> int:
    """Resident bytes of the process and its children."""
    total = 0
    for process in (pid, *children(pid)):
        with contextlib.suppress(OSError, KeyError):  # it may end at any moment
            total += int(status(process, "VmRSS")) * 1024
    return total


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found
