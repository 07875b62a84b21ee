"""Describes the machine and measures its CPU use through /proc. Linux."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET = 0.12
"""A machine that uses fewer cores than this is quiet."""

FEATURES = (
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
"""Instruction sets that matter for the speed of a model."""


def describe() -> dict[str, Any]:
    """CPU, cores, memory, system and Python version."""
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
        "features": [name for name in FEATURES if name in flags],
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
    }


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Total CPU seconds at the time ``at`` (``time.perf_counter()``).

    ``busy``: of the whole machine. ``stolen``: taken by other virtual machines. ``tree``: of one
    process and its descendants. ``own``: of this process. ``children``: of its children that have
    ended. ``resident_mb``: resident memory of the tree in 10^6 bytes.
    """

    at: float
    busy: float
    stolen: float
    tree: float
    own: float
    children: float
    resident_mb: float


def usage(pid: int) -> Usage:
    """A snapshot; ``pid`` is the root of the process tree."""
    busy, stolen = machine_seconds()
    tree, resident = tree_usage(pid)
    own = os.times()
    return Usage(
        at=time.perf_counter(),
        busy=busy,
        stolen=stolen,
        tree=tree,
        own=own.user + own.system,
        children=own.children_user + own.children_system,
        resident_mb=resident / 1e6,
    )


def between(
    before: Usage, after: Usage, pauses: Sequence[tuple[Usage, Usage]] = ()
) -> dict[str, float]:
    """The CPU use between two snapshots, in percent of one core, without that in ``pauses``."""

    def spent(seconds: Callable[[Usage], float]) -> float:
        whole = seconds(after) - seconds(before)
        return whole - sum(seconds(end) - seconds(start) for start, end in pauses)

    def percent(seconds: Callable[[Usage], float]) -> float:
        return 100 * spent(seconds) / spent(lambda usage: usage.at)

    return {
        "server_cpu_pct": percent(lambda usage: usage.tree),
        "client_cpu_pct": percent(lambda usage: usage.own),
        "other_cpu_pct": percent(lambda u: u.busy - u.tree - u.own - u.children),
        "steal_pct": percent(lambda usage: usage.stolen),
        "rss_mb": after.resident_mb,
    }


def wait_quiet(limit: float, window: float = 1.0) -> bool:
    """Wait until the machine was quiet for ``window`` seconds; False after ``limit`` seconds.

    Returns False at once if ``limit`` is 0.
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
    """Busy and stolen CPU seconds of the machine; zeros without /proc."""
    first = _read("/proc/stat").partition("\n")[0].split()[1:]
    if not first:
        return 0.0, 0.0
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first[:8])
    return (user + nice + system + irq + softirq) / tick, steal / tick


def tree_usage(pid: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process and its descendants."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    seconds, resident = 0.0, 0
    for member in tree(pid):
        fields = _stat(member)
        if fields:
            seconds += (int(fields[11]) + int(fields[12])) / tick
            resident += int(fields[21]) * page
    return seconds, resident


def tree(pid: int) -> list[int]:
    """The ids of a process and its descendants."""
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
    """The fields of /proc/PID/stat from the third on; the second, a name, may contain spaces."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
