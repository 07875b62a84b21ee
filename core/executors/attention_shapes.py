"""Shapes of attention, as a KV cache and an attention backend take them."""

from __future__ import annotations

from typing import assert_never

import torch

from core.kv.layer_spec import LayerSpec
from core.models.spec import Attention, LatentAttention, Mixer


def layer_spec(mixer: Mixer, sinks: torch.Tensor | None = None) -> LayerSpec:
    """The attention of a mixer, with the sinks of its heads if they are known."""
    match mixer:
        case Attention():
            return LayerSpec(
                mixer.num_heads,
                mixer.num_kv_heads,
                mixer.head_dim,
                mixer.value_dim,
                mixer.scale,
                mixer.window,
                mixer.softcap,
                sinks,
            )
        case LatentAttention():  # keys and values are kept for every head
            key_dim, heads = mixer.plain_dim + mixer.rope_dim, mixer.num_heads
            return LayerSpec(heads, heads, key_dim, mixer.value_dim, mixer.scale, None)
        case _:
            assert_never(mixer)
