"""Arrays of the arena: aligned, zeroed, disjoint, and freed with their last view."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest
import torch

from core.system import huge_pages
from core.system.huge_pages import Arena
from core.system.memory_ahead import HUGE_PAGE

SMAPS = Path("/proc/self/smaps")
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_arrays_are_zeroed_aligned_and_do_not_overlap():
    arena = Arena(chunk_bytes=1 << 16)
    sizes = [1, 63, 64, 65, 30_000, 40_000, 1 << 16, 100_000, 0, 7]
    arrays = [arena.zeros(size) for size in sizes]
    for number, (array, size) in enumerate(zip(arrays, sizes, strict=True)):
        assert array.dtype is torch.uint8
        assert len(array) == size
        assert array.data_ptr() % 64 == 0 or not size
        assert not array.any()
        array.fill_(number + 1)
    for number, array in enumerate(arrays):
        assert (array == number + 1).all()


def test_small_arrays_share_a_chunk_and_large_ones_start_at_a_huge_page():
    arena = Arena(chunk_bytes=1 << 20)
    first, second = arena.zeros(1000), arena.zeros(1000)
    assert second.data_ptr() - first.data_ptr() == 1024
    assert first.data_ptr() % HUGE_PAGE == 0
    assert arena.zeros(3 << 20).data_ptr() % HUGE_PAGE == 0


@pytest.mark.skipif(not SMAPS.exists(), reason="needs Linux' /proc")
def test_a_large_array_is_advised_and_unmapped_with_its_last_view():
    array = huge_pages.zeros(64 << 20)
    start = array.data_ptr()
    view = array[-10:]
    del array
    gc.collect()
    assert "hg" in _flags_at(start)  # VmFlags of madvise(MADV_HUGEPAGE)
    view.fill_(1)
    del view
    gc.collect()
    assert "hg" not in _flags_at(start)


def test_without_huge_pages_the_memory_is_ordinary(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    array = Arena().zeros(40 << 20)
    assert len(array) == 40 << 20
    assert not array[::4096].any()


@pytest.mark.skipif(
    not SWITCH.exists() or "[never]" in SWITCH.read_text("ascii"), reason="huge pages are off"
)
def test_written_memory_is_in_huge_pages():
    array = huge_pages.zeros(64 << 20)
    array.fill_(1)
    if not _huge_kib_at(array.data_ptr()):
        pytest.skip("the system has no free huge page")
    assert _huge_kib_at(array.data_ptr()) > 32 << 10


def _mapping_at(address: int) -> list[str]:
    """The lines of /proc/self/smaps about the mapping that holds this address."""
    found: list[str] = []
    for line in SMAPS.read_text("ascii").splitlines():
        span = line.split(" ", 1)[0]
        if "-" in span:
            low, high = (int(part, 16) for part in span.split("-"))
            if found:
                break
            if low <= address < high:
                found.append(line)
        elif found:
            found.append(line)
    return found


def _flags_at(address: int) -> list[str]:
    lines = [line for line in _mapping_at(address) if line.startswith("VmFlags")]
    return lines[0].split() if lines else []


def _huge_kib_at(address: int) -> int:
    lines = [line for line in _mapping_at(address) if line.startswith("AnonHugePages")]
    return int(lines[0].split()[1])
