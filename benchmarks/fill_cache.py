"""Fill a KV cache through its backend, which alone knows how values are ordered in a block."""

from __future__ import annotations

import numpy as np
import torch

from core.attention.base import AttentionBackend
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput


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
    backend.plan(_one_sequence_per_block(storage.num_blocks, size).on(cache.device))
    backend.forward(query, key, value, layer)


def _one_sequence_per_block(num_blocks: int, block_size: int) -> ModelInput:
    slots = torch.arange(num_blocks * block_size)
    return ModelInput(
        token_ids=torch.zeros_like(slots),
        positions=slots % block_size,
        slots=slots,
        logits_indices=torch.zeros(0, dtype=torch.int64),
        query_starts=np.arange(num_blocks + 1) * block_size,
        context_lens=np.full(num_blocks, block_size),
        block_tables=np.arange(num_blocks)[:, None],
    )
