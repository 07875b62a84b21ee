"""The scheduler of a built runner, and the manager of its KV cache."""

from __future__ import annotations

from core.assembly.runner import BuiltRunner
from core.kv.manager import KVCacheManager
from core.scheduler import Scheduler


def build_scheduler(
    built: BuiltRunner, *, enable_prefix_caching: bool
) -> tuple[Scheduler, KVCacheManager]:
    """Return a scheduler for what the runner and its cache have room for."""
    limits = built.limits
    kv = KVCacheManager(
        built.cache.num_blocks,
        limits.block_size,
        enable_prefix_caching=enable_prefix_caching,
        windows=built.cache.windows,
    )
    scheduler = Scheduler(
        kv,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        prefill_chunk_size=limits.prefill_chunk_size,
        max_step_seconds=limits.max_step_seconds,
    )
    return scheduler, kv
