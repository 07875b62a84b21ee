"""The resources that the system lets this process use: memory in bytes, CPU cores.

Linux says it in files under ``/proc`` and ``/sys``. ``root`` is the directory that they are under.
A file that is missing or unreadable bounds nothing. The limits of every enclosing control group
count, of version 1 and 2 of the interface.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path("/")

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    """Names of a control group's files: limit, usage, and the keys of its reclaimable pages."""

    limit: str
    usage: str
    reclaimable: tuple[str, ...]


_V1 = _MemoryFiles(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)
_V2 = _MemoryFiles("memory.max", "memory.current", ("inactive_file", "active_file"))


def available_memory(root: Path = ROOT) -> int:
    """Bytes that this process can still take.

    The least of: memory that is free or holds reclaimable pages of files (``MemAvailable``); what
    the limit of each enclosing control group leaves, where the group's file pages count as free;
    what the limit of the process's address space leaves; and, where the system never promises more
    memory than it has, what it has not promised yet.
    """
    meminfo = _table(root / "proc/meminfo")
    if "MemAvailable" not in meminfo:
        return os.sysconf("SC_PHYS_PAGES") * _PAGE_SIZE  # not Linux: all there is
    bounds = [meminfo["MemAvailable"] * 1024]
    bounds += _group_memory(root)
    if (limit := _address_space(root)) is not None:
        bounds.append(limit)
    if _text(root / "proc/sys/vm/overcommit_memory") == "2":
        bounds.append((meminfo["CommitLimit"] - meminfo["Committed_AS"]) * 1024)
    return max(0, min(bounds))


def total_memory(root: Path = ROOT) -> int:
    """Bytes of memory of the machine, or of the control group that limits it most."""
    meminfo = _table(root / "proc/meminfo")
    total = meminfo["MemTotal"] * 1024 if "MemTotal" in meminfo else 0
    limits = [limit for _, limit, _ in _group_limits(root)]
    return min([total or os.sysconf("SC_PHYS_PAGES") * _PAGE_SIZE, *limits])


def cpu_quota(root: Path = ROOT) -> float | None:
    """CPUs that the enclosing control groups pay for; None without a quota."""
    return min(_quotas(root), default=None)


def free_swap(root: Path = ROOT) -> int:
    """Bytes of swap that are free, whatever a control group says of them."""
    return _table(root / "proc/meminfo").get("SwapFree", 0) * 1024


def num_cores(root: Path = ROOT) -> int:
    """Physical cores that this process may use at once, at least 1.

    The cores of the CPUs that it may run on, of which simultaneous threads count once, but no more
    than the whole CPUs that the quota of each enclosing control group pays for.
    """
    cpus = _allowed_cpus(root)
    cores = {_siblings(root, cpu) for cpu in cpus}
    return max(1, min([len(cores), *(math.floor(quota) for quota in _quotas(root))]))


@dataclass(frozen=True, slots=True)
class NodeThreads:
    """Threads that compute on one NUMA node, and the CPUs of the node that the process may use."""

    num_threads: int
    cpus: frozenset[int]


def threads_by_node(num_threads: int, root: Path = ROOT) -> list[NodeThreads]:
    """Divide threads among NUMA nodes by their physical cores; the first node gets the first ones.

    Nodes without threads are left out. Empty if all threads are on one node, or on a system that
    does not tell.
    """
    allowed = _allowed_cpus(root)
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    numbered = sorted((int(folder.name.removeprefix("node")), folder) for folder in folders)
    nodes = [frozenset(_cpu_list(_text(f / "cpulist")) & allowed) for _, f in numbered]
    num_cores_of = [len({_siblings(root, cpu) for cpu in node}) for node in nodes]
    ends = [num_threads * total // max(1, sum(num_cores_of)) for total in accumulate(num_cores_of)]
    starts = [0, *ends][: len(ends)]
    found = [
        NodeThreads(end - start, cpus)
        for start, end, cpus in zip(starts, ends, nodes, strict=True)
        if end > start
    ]
    return found if len(found) > 1 else []


def _group_memory(root: Path) -> Iterator[int]:
    """Bytes left in each enclosing group that has a limit."""
    for folder, limit, names in _group_limits(root):
        usage = _integer(folder / names.usage)
        if usage is not None:
            pages = _table(folder / "memory.stat")
            yield limit - usage + sum(pages.get(key, 0) for key in names.reclaimable)


def _group_limits(root: Path) -> Iterator[tuple[Path, int, _MemoryFiles]]:
    """Each enclosing group that has a limit, and that in bytes."""
    for folder, names in (
        *((folder, _V2) for folder in _groups(root, "")),
        *((folder, _V1) for folder in _groups(root, "memory")),
    ):
        limit = _integer(folder / names.limit)
        if limit is not None:
            yield folder, limit, names


def _quotas(root: Path) -> Iterator[float]:
    """CPUs that each enclosing group with a quota may use."""
    for folder in _groups(root, ""):
        words = _text(folder / "cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            yield int(words[0]) / int(words[1])
    for folder in _groups(root, "cpu"):
        quota, period = (
            _integer(folder / "cpu.cfs_quota_us"),
            _integer(folder / "cpu.cfs_period_us"),
        )
        if quota is not None and period and quota > 0:
            yield quota / period


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that this process is in, outermost first.

    ``controller`` is of version 1; the empty one is version 2. A container sees its own group as
    the outermost, whatever path the file says.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        mounts = [f"sys/fs/cgroup/{controllers}", f"sys/fs/cgroup/{controller}"]
        if not controller:
            mounts = ["sys/fs/cgroup/unified", "sys/fs/cgroup"]
        mount = next((root / name for name in mounts if (root / name).is_dir()), None)
        if mount is None:
            continue
        parts = [part for part in path.split("/") if part]
        depths = range(len(parts) + 1) if ".." not in parts else range(1)
        yield from (mount.joinpath(*parts[:depth]) for depth in depths)


def _address_space(root: Path) -> int | None:
    """Bytes that are left of ``ulimit -v``; None without a limit."""
    for line in _text(root / "proc/self/limits").splitlines():
        name, _, values = line.partition("  ")
        if name == "Max address space" and values.split()[0] != "unlimited":
            pages = _text(root / "proc/self/statm").split()[0]
            return int(values.split()[0]) - int(pages) * _PAGE_SIZE
    return None


def _allowed_cpus(root: Path) -> set[int]:
    """CPUs of the process's affinity."""
    for line in _text(root / "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return _cpu_list(value.strip())
    return set(range(os.cpu_count() or 1))  # not Linux


def _siblings(root: Path, cpu: int) -> frozenset[int]:
    """Return the CPUs that share a core with ``cpu``, itself among them."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    return frozenset(_cpu_list(_text(path)) or {cpu})


def _cpu_list(text: str) -> set[int]:
    """Parse ``0-3,8``."""
    cpus: set[int] = set()
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _table(path: Path) -> dict[str, int]:
    """Read lines of ``name value`` or ``name: value kB``; the unit is the caller's matter."""
    rows = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _integer(path: Path) -> int | None:
    """Return the number that a file holds; None if there is none, as in ``max``."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    """Return the file without the white space around it; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
