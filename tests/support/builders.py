"""Small builders: requests, sequences and caches with sensible defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv.manager import KVCacheManager
from core.kv.window_group import WindowSize
from core.scheduler import Scheduler
from core.scheduler.demand import Demand
from core.state.sequence import Sequence


def make_params(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 8, **fields})


def make_request(
    prompt: Iterable[int] = (1, 2, 3),
    *,
    request_id: str = "r",
    stream_interval: int = 1,
    cache_salt: str = "",
    tenant: str = "",
    priority: int = 0,
    **params: Any,
) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=make_params(**params),
        stream_interval=stream_interval,
        cache_salt=cache_salt,
        tenant=tenant,
        priority=priority,
    )


def make_sequence(
    prompt: Iterable[int] = (1, 2, 3), *, num_groups: int = 1, **fields: Any
) -> Sequence:
    return Sequence(make_request(prompt, **fields), seed=0, num_groups=num_groups)


def make_kv(
    num_blocks: int = 8,
    block_size: int = 4,
    *,
    enable_prefix_caching: bool = True,
    windows: Iterable[WindowSize] = (),
) -> KVCacheManager:
    return KVCacheManager(
        num_blocks, block_size, enable_prefix_caching=enable_prefix_caching, windows=windows
    )


class NoDemand(Demand):
    """Expects that every sequence ends at once, so that sequences are preempted often."""

    def remaining_tokens(self, sequence: Sequence) -> float:
        return 0.0


def make_scheduler(
    kv: KVCacheManager,
    *,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    prefill_chunk_size: int | None = None,
    max_step_seconds: float | None = None,
    max_scored_tokens: int = 256,
    keys_per_row: float = math.inf,
    demand: Demand | None = None,
) -> Scheduler:
    return Scheduler(
        kv,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_chunk_size=prefill_chunk_size,
        max_step_seconds=max_step_seconds,
        max_scored_tokens=max_scored_tokens,
        keys_per_row=keys_per_row,
        demand=demand or NoDemand(),
    )


def blocks_of(sequence: Sequence) -> list[int]:
    return sequence.block_table.view().tolist()
