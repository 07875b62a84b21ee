"""Causal attention of one prompt without a KV cache: what the proofs at load compute."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from core.kv.layer_spec import LayerSpec


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """Attend ``[num_tokens, heads, dim]`` each; returns ``[num_tokens, num_heads, value_dim]``."""
    positions = torch.arange(query.shape[0], device=query.device)
    mask = positions <= positions[:, None]
    if spec.sliding_window is not None:
        mask &= positions > positions[:, None] - spec.sliding_window
    if spec.softcap is not None or spec.sinks is not None:
        return _plain(query, key, value, mask, spec)
    output = scaled_dot_product_attention(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        attn_mask=mask,
        scale=spec.scale,
        enable_gqa=spec.num_heads != spec.num_kv_heads,
    )
    return output.transpose(0, 1)


def _plain(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    spec: LayerSpec,
) -> torch.Tensor:
    """The same in single operations, with what torch's function does not have. In float32."""
    num_tokens = query.shape[0]
    q = query.float().transpose(0, 1).reshape(spec.num_kv_heads, -1, num_tokens, spec.head_dim)
    k, v = (states.float().transpose(0, 1)[:, None] for states in (key, value))
    scores = q @ k.transpose(-1, -2) * spec.scale  # [kv_heads, group, num_tokens, num_tokens]
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if spec.sinks is not None:
        sinks = spec.sinks.view(spec.num_kv_heads, -1, 1, 1).expand(-1, -1, num_tokens, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :num_tokens]
    return (weights @ v).flatten(0, 1).transpose(0, 1).to(query.dtype)
