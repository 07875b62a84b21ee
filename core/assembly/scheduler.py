"""The scheduler within an engine's limits, and the manager of its KV cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.kv.touch_ahead import TouchAhead
from core.kv.window_group import WindowSize
from core.run.limits import Limits
from core.scheduler import Scheduler
from core.system.machine import threads_by_node


def build_scheduler(
    limits: Limits,
    num_blocks: int,
    *,
    enable_prefix_caching: bool,
    windows: Iterable[WindowSize] = (),
) -> tuple[Scheduler, KVCacheManager]:
    """Return a scheduler over a cache of so many blocks, and its manager. See KVCacheManager."""
    kv = KVCacheManager(
        num_blocks,
        limits.block_size,
        enable_prefix_caching=enable_prefix_caching,
        windows=windows,
    )
    scheduler = Scheduler(
        kv,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        prefill_chunk_size=limits.prefill_chunk_size,
        max_step_seconds=limits.max_step_seconds,
        keys_per_row=limits.keys_per_row,
    )
    return scheduler, kv


def build_memory_ahead(
    storages: Sequence[KVStorage], kv: KVCacheManager, device: str
) -> TouchAhead | None:
    """Return the TouchAhead of a cache on a CPU.

    None on other devices, which allocate all of it at the start, and with several NUMA nodes, where
    the thread that uses a page has to touch it first.
    """
    if device != "cpu" or threads_by_node(torch.get_num_threads()):
        return None
    return TouchAhead(storages, kv)
