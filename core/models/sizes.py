"""Sizes of a spec."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any, assert_never

from core.models.spec import (
    Attention,
    DecoderSpec,
    FeedForward,
    LatentAttention,
    Mixer,
    Mixture,
    Tensors,
)


def num_parameters(spec: DecoderSpec) -> int:
    """Values of all tensors."""
    return sum(prod(shape) for _, shape in roles_of(spec))


def roles_of(spec: DecoderSpec) -> Tensors:
    """Roles and shapes of all tensors."""
    yield from spec.tensors()
    for layer in spec.layers:
        yield from layer.tensors(spec.hidden_size)


def sizes_of(spec: DecoderSpec, model_type: str) -> Any:
    """The sizes of the largest layer, by the names that configurations have for them."""
    heads = [_heads(layer.mixer) for layer in spec.layers]
    num_heads, num_kv_heads, head_dim = max(heads, key=lambda sizes: sizes[0] * sizes[2])
    windows = [getattr(layer.mixer, "window", None) for layer in spec.layers]
    parts = [layer.feed_forward for layer in spec.layers]
    sizes = [part.size for part in parts if isinstance(part, FeedForward)]
    mixtures = [part for part in parts if isinstance(part, Mixture)]
    return SimpleNamespace(
        model_type=model_type,
        hidden_size=spec.hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=max(sizes, default=0),
        num_experts_per_tok=mixtures[0].per_token if mixtures else 0,
        moe_intermediate_size=mixtures[0].expert.size if mixtures else 0,
        layer_types=["full_attention" if w is None else "sliding_attention" for w in windows],
    )


def _heads(mixer: Mixer) -> tuple[int, int, int]:
    """The number of heads of queries and of keys, and their columns."""
    match mixer:
        case Attention():
            return mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
        case LatentAttention():  # keys are kept for every head
            return mixer.num_heads, mixer.num_heads, mixer.plain_dim + mixer.rope_dim
        case _:
            assert_never(mixer)
