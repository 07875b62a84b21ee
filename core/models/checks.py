"""check_sizes: whether the numbers of a spec go together, since kernels use them without asking."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, assert_never

from core.models.spec import (
    Attention,
    DecoderSpec,
    FeedForward,
    LatentAttention,
    Mixer,
    Mixture,
    Norm,
    Rope,
    Undescribed,
)


def check_sizes(spec: DecoderSpec) -> None:
    """Raise Undescribed for sizes, counts, epsilons and frequencies that no decoder can have."""
    _need(spec.vocab_size > 0 and spec.hidden_size > 0, "the vocabulary or the hidden size is 0")
    _check_norms(spec.final_norm)
    for i, layer in enumerate(spec.layers):
        _check_mixer(layer.mixer, spec, i)
        feed_forwards = [layer.feed_forward, layer.layer_input]
        if isinstance(layer.feed_forward, Mixture):
            _check_mixture(layer.feed_forward)
            feed_forwards = [layer.feed_forward.expert, layer.feed_forward.shared]
        for each in feed_forwards:
            _need(not isinstance(each, FeedForward) or each.size > 0, "a feed-forward has no size")
        _check_norms(layer)


def _check_norms(part: Any) -> None:
    """Check the epsilons of all norms of a part."""
    if isinstance(part, Norm):
        _need(part.eps > 0, f"the epsilon of a norm is {part.eps}")
    elif is_dataclass(part) and not isinstance(part, Rope):
        for field in fields(part):
            _check_norms(getattr(part, field.name))


def _check_mixer(mixer: Mixer, spec: DecoderSpec, index: int) -> None:
    match mixer:
        case Attention():
            heads, kv_heads = mixer.num_heads, mixer.num_kv_heads
            fits = kv_heads > 0 and heads > 0 and heads % kv_heads == 0
            _need(fits, f"{heads} heads do not share {kv_heads} heads of keys")
            _need(mixer.head_dim > 0 and mixer.value_dim > 0, "heads have no columns")
            _need(mixer.window is None or mixer.window > 0, "a window has no tokens")
            _check_rope(mixer.rope, mixer.head_dim)
            of = mixer.keys_of
            other = None if of is None or of >= index else spec.layers[of].mixer
            _need(of is None or isinstance(other, Attention), f"a layer has no keys of {of}")
        case LatentAttention():
            sizes = (mixer.num_heads, mixer.plain_dim, mixer.value_dim, mixer.kv_rank)
            _need(min(sizes) > 0 and mixer.query_rank != 0, "latent attention lacks a size")
            _check_rope(mixer.rope, mixer.rope_dim)
        case _:
            assert_never(mixer)


def _check_rope(rope: Rope | None, head_dim: int) -> None:
    if rope is not None:
        rotated = 2 * len(rope.frequencies)
        _need(rotated <= head_dim, f"{rotated} of {head_dim} columns are rotated")
        _need(all(map(isfinite, rope.frequencies)), "a frequency of RoPE is no number")


def _check_mixture(mixture: Mixture) -> None:
    router, count, chosen = mixture.router, mixture.num_experts, mixture.per_token
    groups, of_groups = router.num_groups, router.groups_chosen
    _need(groups > 0 and count % groups == 0, f"{count} experts are no {groups} groups")
    size = count // groups
    _need(groups == 1 or size >= 2, f"{count} experts in {groups} groups")
    _need(1 <= of_groups <= groups, f"{of_groups} of {groups} groups are chosen")
    _need(1 <= chosen <= size * of_groups, f"{chosen} of {size * of_groups} experts are chosen")


def _need(is_right: bool, message: str) -> None:
    if not is_right:
        raise Undescribed(message)
