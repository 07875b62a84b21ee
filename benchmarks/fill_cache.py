"""Fill a KV cache through its backend, which alone knows how values are ordered in a block."""

from __future__ import annotations

import torch

from benchmarks.attention_batch import batch_of
from core.attention.base import AttentionBackend
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec


def fill(
    backend: AttentionBackend,
    storage: KVStorage,
    spec: LayerSpec,
    layer: int,
    *,
    seed: int,
    rounded_to: torch.dtype | None = None,
) -> None:
    """Write random keys and values to all blocks of ``layer``; the same for every backend.

    They are rounded to ``rounded_to`` before, so that caches of several types hold equal values.
    """
    cache = storage.keys[0]
    size = storage.block_size
    num_tokens = storage.num_blocks * size
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(num_tokens, heads, dim, generator=generator)
        .to(rounded_to or cache.dtype)
        .to(cache.device, cache.dtype)
        for heads, dim in (
            (spec.num_heads, spec.head_dim),
            (spec.num_kv_heads, spec.head_dim),
            (spec.num_kv_heads, spec.value_dim),
        )
    )
    blocks = [[block] for block in range(storage.num_blocks)]
    one_sequence_per_block = batch_of(blocks, [(0, size)] * storage.num_blocks, size)
    backend.plan(one_sequence_per_block.on(cache.device))
    backend.forward(query, key, value, layer)
