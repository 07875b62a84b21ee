"""Memory of the KV cache is taken before blocks are used, a huge page at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.assembly import scheduler
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv import touch_ahead
from core.kv.layer_spec import LayerSpec
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.kv.touch_ahead import TouchAhead
from core.state.sequence import Sequence
from core.system.memory_ahead import HUGE_PAGE

PAGEMAP = Path("/proc/self/pagemap")

BLOCK = 16

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    not PAGEMAP.exists() or not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(),
    reason="needs Linux' /proc and huge pages",
)


class Cache:
    """32 blocks have a huge page of each of four tensors, of which each has 16."""

    def __init__(self, num_bytes: int | None, idle_tokens: int = 0) -> None:
        layers = [LayerSpec(8, 8, 256, 256, 1.0, None)] * 2
        self.storage = KVStorage(
            layers, num_blocks=512, block_size=BLOCK, dtype=torch.bfloat16, device=CPU
        )
        self.kv = KVCacheManager(512, BLOCK, enable_prefix_caching=False)
        self.ahead = TouchAhead(
            [self.storage], self.kv, num_bytes=num_bytes, idle_tokens=idle_tokens
        )

    def use(self, num_blocks: int) -> Sequence:
        """Allocate blocks to a sequence."""
        request = EngineRequest(
            request_id="long",
            prompt_token_ids=(0,) * (num_blocks * BLOCK),
            params=SamplingParams(max_tokens=1),
        )
        sequence = Sequence(request, seed=0)
        assert self.kv.allocate(sequence)
        return sequence

    def prepare(self, *, is_idle: bool = True, had_prompts: bool = False) -> int:
        """Prepare until there is nothing more to do; returns the number of pages."""
        number = 0
        while self.ahead.advance(is_idle=is_idle, had_prompts=had_prompts):
            number += 1
            assert number <= 100
        return number

    def is_resident(self, block: int) -> bool:
        """Whether all memory of a block is there."""
        return all(
            _is_resident(tensor[block].data_ptr())
            and _is_resident(tensor[block + 1].data_ptr() - 1)
            for tensor in self.storage.tensors
        )


CPU = torch.device("cpu")


def _is_resident(address: int) -> bool:
    """Whether the system has backed this address with memory."""
    with PAGEMAP.open("rb") as file:
        file.seek(address // 4096 * 8)
        return bool(int.from_bytes(file.read(8), "little") >> 63)


def test_the_blocks_after_those_in_use_have_memory_before_they_are_used():
    cache = Cache(num_bytes=64 * 4 * (HUGE_PAGE // 32))
    cache.prepare()
    assert all(cache.is_resident(block) for block in range(33, 63))
    assert not cache.is_resident(100)
    cache.use(50)
    cache.prepare()
    assert all(cache.is_resident(block) for block in range(33, 113))
    assert not cache.is_resident(150)


def test_a_small_model_takes_two_pages_of_each_tensor():
    assert 4 <= Cache(num_bytes=None).prepare() <= 4 * 2


def test_an_idle_engine_takes_memory_for_its_tokens_and_a_busy_one_less():
    cache = Cache(num_bytes=4 * 2 * HUGE_PAGE, idle_tokens=8 * 32 * BLOCK)
    assert cache.prepare(is_idle=False) <= 4 * 2
    cache.prepare()
    assert all(cache.is_resident(block) for block in range(33, 8 * 32 - 1))
    assert not cache.is_resident(9 * 32)
    cache.use(7 * 32)  # what is left suffices a busy engine
    assert cache.prepare(is_idle=False) == 0


def test_an_idle_engine_takes_a_gibibyte_at_most(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(touch_ahead, "IDLE_BYTES", 4 * 3 * HUGE_PAGE)
    assert 4 <= Cache(num_bytes=HUGE_PAGE, idle_tokens=1 << 40).prepare() <= 4 * 3


def test_what_is_in_the_cache_stays():
    cache = Cache(num_bytes=1 << 30)
    for tensor in cache.storage.tensors:
        tensor.fill_(3.0)
    assert cache.prepare() == 4 * 16
    assert all((tensor == 3.0).all() for tensor in cache.storage.tensors)


def test_pages_in_use_are_not_touched_again():
    cache = Cache(num_bytes=4 * HUGE_PAGE)
    cache.use(400)
    assert cache.prepare() <= 8


def test_blocks_that_are_used_again_need_no_memory():
    cache = Cache(num_bytes=4 * HUGE_PAGE)
    sequence = cache.use(100)
    cache.prepare()
    cache.kv.free(sequence)
    cache.use(100)
    assert cache.prepare() == 0


def test_a_busy_engine_takes_memory_when_half_of_it_is_used():
    cache = Cache(num_bytes=4 * 4 * HUGE_PAGE)
    cache.prepare()
    cache.use(50)
    assert cache.prepare(is_idle=False) == 0
    cache.use(50)
    assert cache.prepare(is_idle=False) > 0
    assert all(cache.is_resident(block) for block in range(33, 163))
    assert cache.prepare() > 0


def test_after_a_step_with_prompts_memory_is_taken_when_an_eighth_is_left():
    cache = Cache(num_bytes=4 * 4 * HUGE_PAGE)
    cache.prepare()
    cache.use(100)
    assert cache.prepare(is_idle=False, had_prompts=True) == 0
    cache.use(50)
    assert cache.prepare(is_idle=False, had_prompts=True) > 0


def test_memory_is_left_to_the_threads_of_several_nodes_and_to_devices(monkeypatch):
    cache = Cache(num_bytes=None)
    parts = [cache.storage], cache.kv
    monkeypatch.setattr(scheduler, "threads_by_node", lambda _num: [])
    assert scheduler.build_memory_ahead(*parts, "cpu") is not None
    assert scheduler.build_memory_ahead(*parts, "cuda") is None
    monkeypatch.setattr(scheduler, "threads_by_node", lambda _num: ["a", "b"])
    assert scheduler.build_memory_ahead(*parts, "cpu") is None
