"""Scatter a step's keys and values into their blocks."""

from __future__ import annotations

import torch


def write_to_cache(cache: torch.Tensor, states: torch.Tensor, slots: torch.Tensor) -> None:
    """Store ``states`` in their slots of one layer's ``cache``.

    ``cache`` is ``[num_blocks, num_kv_heads, block_size, dim]``, ``states``
    ``[num_tokens, num_kv_heads, dim]``, ``slots`` ``[num_tokens]`` (block * block_size + offset).
    """
    _, num_kv_heads, block_size, dim = cache.shape
    heads = torch.arange(num_kv_heads, device=slots.device)
    blocks, offsets = slots // block_size, slots % block_size
    rows = (blocks[:, None] * num_kv_heads + heads) * block_size + offsets[:, None]
    cache.view(-1, dim).index_copy_(0, rows.view(-1), states.reshape(-1, dim).to(cache.dtype))
