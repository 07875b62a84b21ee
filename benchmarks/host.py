"""What the machine is, and what it is doing: processors, memory, and who uses them. Linux."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET = 0.12
"""Cores in use below which a machine is called quiet."""

TOLD_FEATURES = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_bf16",
    "amx_int8",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
)
"""Instruction sets that decide how fast a model runs."""


def describe() -> dict[str, Any]:
    """Processor, cores, memory, system: what a reader needs to judge a figure."""
    cpu = _read("/proc/cpuinfo")
    flags = set()
    for line in cpu.splitlines():
        if line.startswith(("flags", "Features")):
            flags |= set(line.split(":", 1)[1].split())
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read("/proc/meminfo"))
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _field(cpu, "model name") or platform.processor() or platform.machine(),
        "cpu_family": f"{_field(cpu, 'cpu family')}/{_field(cpu, 'model')}",
        "features": [name for name in TOLD_FEATURES if name in flags],
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
    }


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Seconds of processor time so far, at a moment of ``time.perf_counter()``.

    ``busy`` is the whole machine's, ``stolen`` what others took from it, ``tree`` that of one
    process and all below it, ``own`` that of this process. ``resident_mb`` is the tree's resident
    memory in 10^6 bytes.
    """

    at: float
    busy: float
    stolen: float
    tree: float
    own: float
    resident_mb: float


def usage(pid: int) -> Usage:
    """A snapshot, with the tree below ``pid``."""
    busy, stolen = machine_seconds()
    tree, resident = tree_usage(pid)
    own = os.times()
    return Usage(
        at=time.perf_counter(),
        busy=busy,
        stolen=stolen,
        tree=tree,
        own=own.user + own.system,
        resident_mb=resident / 1e6,
    )


def between(before: Usage, after: Usage) -> dict[str, float]:
    """What happened in between, in percent of one core."""
    span = after.at - before.at

    def percent(seconds: float) -> float:
        return 100 * seconds / span

    tree, own = after.tree - before.tree, after.own - before.own
    return {
        "server_cpu_pct": percent(tree),
        "client_cpu_pct": percent(own),
        "other_cpu_pct": percent(after.busy - before.busy - tree - own),
        "steal_pct": percent(after.stolen - before.stolen),
        "rss_mb": after.resident_mb,
    }


def wait_quiet(limit: float, window: float = 1.0) -> bool:
    """Wait until nothing has run for ``window`` seconds; False if that was not so in time.

    A ``limit`` of 0 does not look.
    """
    if not limit:
        return False
    end = time.monotonic() + limit
    while True:
        before = sum(machine_seconds())
        time.sleep(window)
        if (sum(machine_seconds()) - before) / window < QUIET:
            return True
        if time.monotonic() > end:
            return False


def machine_seconds() -> tuple[float, float]:
    """Processor seconds that were used, and those that were stolen; zeros without a /proc."""
    first = _read("/proc/stat").partition("\n")[0].split()[1:]
    if not first:
        return 0.0, 0.0
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first[:8])
    return (user + nice + system + irq + softirq) / tick, steal / tick


def tree_usage(pid: int) -> tuple[float, int]:
    """Processor seconds and resident bytes of a process and all below it."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    seconds, resident = 0.0, 0
    for member in tree(pid):
        fields = _stat(member)
        if fields:
            seconds += (int(fields[11]) + int(fields[12])) / tick
            resident += int(fields[21]) * page
    return seconds, resident


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on, which may follow any name."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
