"""Causal attention of one prompt without a KV cache: what the proofs at load compute."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from core.layer_spec import LayerSpec


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """Attend ``[num_tokens, heads, dim]`` each; returns ``[num_tokens, num_heads, value_dim]``."""
    positions = torch.arange(query.shape[0], device=query.device)
    mask = positions <= positions[:, None]
    if spec.sliding_window is not None:
        mask &= positions > positions[:, None] - spec.sliding_window
    output = scaled_dot_product_attention(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        attn_mask=mask,
        scale=spec.scale,
        enable_gqa=spec.num_heads != spec.num_kv_heads,
    )
    return output.transpose(0, 1)
