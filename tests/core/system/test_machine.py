"""Every bound is read from files, so the tests write files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.system.machine import available_memory, num_cores, threads_by_node

GIB = 2**30


class Files:
    """Writes the files of a machine under a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory(available=20)
        self.cpus("0-7")

    def write(self, name: str, text: object) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def memory(self, *, available: int) -> None:
        """GiB that are available, of 24 of which one is free."""
        lines = ["MemTotal: 25165824 kB", "MemFree: 1048576 kB"]
        self.write("proc/meminfo", "\n".join([*lines, f"MemAvailable: {available << 20} kB"]))

    def cpus(self, allowed: str, **siblings: str) -> None:
        """``cpu3="3,7"`` are the simultaneous threads of a core."""
        self.write("proc/self/status", f"Name:\tpython\nCpus_allowed_list:\t{allowed}")
        for cpu, threads in siblings.items():
            self.write(f"sys/devices/system/cpu/{cpu}/topology/thread_siblings_list", threads)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_reclaimable_pages_of_the_machine_are_available(files: Files):
    assert available_memory(files.root) == 20 * GIB


@pytest.mark.parametrize("path", ["/", "/user.slice/unit"])
def test_a_group_of_version_2_bounds_memory(files: Files, path: str):
    files.write("proc/self/cgroup", f"0::{path}")
    files.write("sys/fs/cgroup/memory.max", 8 * GIB)
    files.write("sys/fs/cgroup/memory.current", 5 * GIB)
    assert available_memory(files.root) == 3 * GIB


def test_file_pages_of_a_group_are_free(files: Files):
    files.write("proc/self/cgroup", "0::/")
    files.write("sys/fs/cgroup/memory.max", 8 * GIB)
    files.write("sys/fs/cgroup/memory.current", 5 * GIB)
    stat = f"anon {2 * GIB}\nfile {3 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}"
    files.write("sys/fs/cgroup/memory.stat", stat)
    assert available_memory(files.root) == 6 * GIB


def test_the_tightest_enclosing_group_counts(files: Files):
    files.write("proc/self/cgroup", "0::/a/b")
    for folder, limit in (("a", 4 * GIB), ("a/b", "max")):
        files.write(f"sys/fs/cgroup/{folder}/memory.max", limit)
        files.write(f"sys/fs/cgroup/{folder}/memory.current", GIB)
    assert available_memory(files.root) == 3 * GIB


@pytest.mark.parametrize("folder", ["memory", "memory/docker/4f"])
def test_a_group_of_version_1_bounds_memory(files: Files, folder: str):
    """Inside a container its own group is the mount, whatever path is written."""
    files.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/4f\n4:memory:/docker/4f\n0::/")
    files.write(f"sys/fs/cgroup/{folder}/memory.limit_in_bytes", 6 * GIB)
    files.write(f"sys/fs/cgroup/{folder}/memory.usage_in_bytes", 4 * GIB)
    files.write(f"sys/fs/cgroup/{folder}/memory.stat", f"total_inactive_file {GIB}")
    assert available_memory(files.root) == 3 * GIB


def test_a_group_that_is_over_its_limit_leaves_nothing(files: Files):
    files.write("proc/self/cgroup", "0::/")
    files.write("sys/fs/cgroup/memory.max", GIB)
    files.write("sys/fs/cgroup/memory.current", 2 * GIB)
    assert available_memory(files.root) == 0


def test_the_address_space_bounds_memory(files: Files):
    files.write("proc/self/limits", f"Max address space         {9 * GIB}     unlimited   bytes")
    files.write("proc/self/statm", f"{2 * GIB // os.sysconf('SC_PAGE_SIZE')} 1 1 1 0 1 0")
    assert available_memory(files.root) == 7 * GIB


def test_memory_that_is_promised_counts_where_the_system_keeps_promises(files: Files):
    meminfo = files.root / "proc/meminfo"
    limits = f"\nCommitLimit: {10 << 20} kB\nCommitted_AS: {6 << 20} kB"
    files.write("proc/meminfo", meminfo.read_text() + limits)
    files.write("proc/sys/vm/overcommit_memory", 0)
    assert available_memory(files.root) == 20 * GIB
    files.write("proc/sys/vm/overcommit_memory", 2)
    assert available_memory(files.root) == 4 * GIB


@pytest.mark.parametrize(("allowed", "cores"), [("0-7", 8), ("2", 1), ("0-1,4,6-7", 5)])
def test_cores_are_those_of_the_affinity(files: Files, allowed: str, cores: int):
    files.cpus(allowed)
    assert num_cores(files.root) == cores


def test_simultaneous_threads_count_once(files: Files):
    files.cpus("0-2,4", cpu0="0,4", cpu1="1,5", cpu2="2,6", cpu4="0,4")
    assert num_cores(files.root) == 3


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 8), ("300000 100000", 3), ("250000 100000", 2), ("5 10", 1)]
)
def test_a_quota_of_version_2_bounds_cores(files: Files, quota: str, cores: int):
    files.write("proc/self/cgroup", "0::/a")
    files.write("sys/fs/cgroup/a/cpu.max", quota)
    assert num_cores(files.root) == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, 8), (400_000, 4)])
def test_a_quota_of_version_1_bounds_cores(files: Files, quota: int, cores: int):
    files.write("proc/self/cgroup", "5:cpu,cpuacct:/job")
    files.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota)
    files.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", 100_000)
    assert num_cores(files.root) == cores


def test_this_machine_has_memory_and_a_core():
    assert available_memory() > 0
    assert num_cores() >= 1


def nodes(files: Files, *cpu_lists: str) -> None:
    for number, cpus in enumerate(cpu_lists):
        files.write(f"sys/devices/system/node/node{number}/cpulist", cpus)


def counts(files: Files, num_threads: int) -> list[tuple[int, set[int]]]:
    found = threads_by_node(num_threads, files.root)
    return [(node.num_threads, set(node.cpus)) for node in found]


def test_threads_of_one_node_are_not_divided(files: Files):
    files.cpus("0-15")
    assert counts(files, 16) == []  # a system without the files
    nodes(files, "0-15")
    assert counts(files, 16) == []


def test_threads_are_divided_by_the_cores_of_nodes(files: Files):
    """Two sockets of 32 cores with two threads each."""
    files.cpus("0-127", **{f"cpu{i}": f"{i % 64},{i % 64 + 64}" for i in range(128)})
    nodes(files, "0-31,64-95", "32-63,96-127")
    first, second = {*range(32), *range(64, 96)}, {*range(32, 64), *range(96, 128)}
    assert counts(files, 64) == [(32, first), (32, second)]
    assert counts(files, 5) == [(2, first), (3, second)]
    assert counts(files, 1) == []


def test_only_cpus_that_the_process_may_use_count(files: Files):
    nodes(files, "0-7", "8-15", "16-23")
    files.cpus("0-7")
    assert counts(files, 8) == []
    files.cpus("4-11,16-17")
    expected = [(4, {4, 5, 6, 7}), (4, {8, 9, 10, 11}), (2, {16, 17})]
    assert counts(files, 10) == expected
