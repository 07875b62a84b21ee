"""Memory that is resident before it is taken, and returned when it is not, or no longer, used."""

import gc
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.sizing.budget import cache_budget
from core.system import huge_pages, memory_ahead
from core.system.memory_ahead import HUGE_PAGE

STATUS = Path("/proc/self/statm")
PART = 8 * HUGE_PAGE
SIZE = 4 * PART

pytestmark = pytest.mark.skipif(
    not STATUS.exists() or not hasattr(mmap, "MADV_HUGEPAGE"), reason="needs Linux' huge pages"
)


@pytest.fixture(autouse=True)
def ended():
    yield
    memory_ahead.end()


def resident():
    return int(STATUS.read_text().split()[1]) * mmap.PAGESIZE


def touched(region):
    """Until the thread has touched all of the region. Skips where the kernel does not do it."""
    region._thread.join()
    if region._advise(region._base + region._start, HUGE_PAGE, memory_ahead._POPULATE_WRITE):
        pytest.skip("the kernel does not know MADV_POPULATE_WRITE")


def test_what_is_taken_is_resident_already_and_the_rest_is_returned():
    before = resident()
    memory_ahead.begin(SIZE)
    touched(memory_ahead.current())
    assert resident() - before > 0.9 * SIZE
    array, neighbour = huge_pages.zeros(PART), huge_pages.zeros(64)
    assert array.data_ptr() % HUGE_PAGE == 0
    memory_ahead.end()
    assert abs(resident() - before - PART) < PART // 2, "what was taken stays"
    assert not array.any()
    del array
    gc.collect()
    assert resident() - before < PART // 2, "it goes with its last view"
    assert not neighbour.any()


def test_arrays_lie_side_by_side_and_are_zeroed():
    memory_ahead.begin(SIZE)
    first, second = huge_pages.zeros(1000), huge_pages.zeros(PART)
    assert second.data_ptr() - first.data_ptr() == 1024
    first.fill_(1)
    second.fill_(2)
    assert first.sum() == 1000
    view = second[-5:]
    del second
    gc.collect()
    assert view.tolist() == [2] * 5
    assert not huge_pages.zeros(100).any()


def test_pages_that_others_use_are_not_returned():
    memory_ahead.begin(SIZE)
    first, middle, last = (huge_pages.zeros(HUGE_PAGE + 4096) for _ in range(3))
    first.fill_(1)
    last.fill_(3)
    del middle
    gc.collect()
    assert (first == 1).all()
    assert (last == 3).all()


def test_what_does_not_fit_is_taken_elsewhere():
    memory_ahead.begin(PART)
    large = huge_pages.zeros(2 * PART)
    assert not large.any()
    assert memory_ahead.current().take(PART) is not None
    assert memory_ahead.current().take(1) is None
    memory_ahead.end()
    assert memory_ahead.current() is None
    memory_ahead.end()


def test_a_region_that_is_over_gives_nothing():
    memory_ahead.begin(SIZE)
    region = memory_ahead.current()
    memory_ahead.begin(SIZE)
    assert memory_ahead.current() is not region
    assert region.take(1) is None


def test_the_cache_gets_what_the_weights_did_not_use():
    memory_ahead.begin(SIZE)
    nothing: Any = None
    config = EngineConfig(kv_cache_memory=5)
    budget = cache_budget(nothing, nothing, nothing, nothing, config, torch.float32)
    assert budget(1) == 5
    assert memory_ahead.current() is None


def test_a_load_that_fails_returns_it(tmp_path):
    memory_ahead.begin(SIZE)
    with pytest.raises(ModelLoadError):
        load(ModelConfig(model=str(tmp_path / "nothing"), device="cpu"), EngineConfig())
    assert memory_ahead.current() is None


@pytest.mark.parametrize("num_bytes", [0, HUGE_PAGE - 1, 1 << 60])
def test_without_use_or_address_space_nothing_begins(num_bytes):
    memory_ahead.begin(num_bytes)
    assert memory_ahead.current() is None
    assert len(huge_pages.zeros(10)) == 10
