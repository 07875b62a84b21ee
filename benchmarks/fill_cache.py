"""Fill a KV cache through its backend, which alone knows how values are ordered in a block."""

from __future__ import annotations

import torch

from benchmarks.attention_batch import batch_of
from core.attention.base import AttentionBackend
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage


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

    They are rounded to ``rounded_to`` before, so that caches of several types hold equal values. A
    cache of int8 gets float32, which its backend rounds.
    """
    cache = storage.keys[0]
    size = storage.block_size
    dtype = torch.float32 if cache.dtype is torch.int8 else cache.dtype
    num_tokens = storage.num_blocks * size
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        rounded(torch.randn(num_tokens, heads, dim, generator=generator), rounded_to or dtype).to(
            cache.device, dtype
        )
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


def rounded(states: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round ``[num_tokens, heads, dim]`` to ``dtype``; to int8 as the cache does, in float32."""
    if dtype is not torch.int8:
        return states.to(dtype)
    scale = states.abs().amax(-1, keepdim=True) / 127
    return (states / scale).round() * scale
