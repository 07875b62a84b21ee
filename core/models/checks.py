"""check_spec: refuse a spec whose numbers cannot be computed or do not fit each other.

Executors trust a spec: the compiled kernels read and write memory of the sizes that it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from core.models.spec import (
    Attention,
    DecoderSpec,
    FeedForward,
    Layer,
    LayerInput,
    Mixer,
    Mixture,
    Undescribed,
)

_MOST = (1 << 31) - 1
"""Kernels count in 32 and 64 bits; products of a few sizes fit into the latter."""

_LARGEST = 3e38
"""Kernels compute in float32."""

_FASTEST = _LARGEST / _MOST
"""The frequency whose angle at the last position is finite."""

_FROM_ZERO = {"keys_of", "first"}
"""Integers that may be 0; all others are at least 1."""

_POSITIVE = {"softcap", "logit_cap", "clip", "limit"}
_NOT_ZERO = {"value_scale", "scale"}
"""The kernels take 0 for none."""


def check_spec(spec: DecoderSpec) -> None:
    """Raise Undescribed, which names the field, for a spec that no executor should see."""
    check_values(spec)
    for layer in dict.fromkeys(spec.layers):
        _check_mixer(layer.mixer)
        if isinstance(layer.feed_forward, Mixture):
            _check_mixture(layer.feed_forward)
        _check_input(layer.layer_input, spec.layer_input, spec.vocab_size)
    for i, layer in enumerate(spec.layers):
        if isinstance(layer.mixer, Attention) and layer.mixer.keys_of is not None:
            _check_keys_of(layer.mixer, layer.mixer.keys_of, spec.layers[:i])


def check_values(part: Any) -> None:
    """Raise Undescribed for a number of a spec that is none, or out of its range."""
    for field in fields(part):
        value, kind = getattr(part, field.name), str(field.type)
        if value is None and kind.endswith("None"):
            continue
        inner = value if isinstance(value, tuple) else (value,)
        if not inner or not all(_is_right(field.name, kind, each) for each in inner):
            raise Undescribed(f"{field.name} would be {_short(value)}")
        for each in inner:
            if is_dataclass(each):
                check_values(each)


def _is_right(name: str, kind: str, value: Any) -> bool:
    if kind.startswith("int"):
        return type(value) is int and (name not in _FROM_ZERO) <= value <= _MOST
    if kind.startswith("tuple[float"):
        return isinstance(value, float) and abs(value) <= _FASTEST
    if not kind.startswith("float"):
        return True
    if type(value) not in {int, float} or not abs(value) <= _LARGEST:
        return False
    if name in _POSITIVE:
        return bool(value > 0)
    return bool(value >= 0) if name == "eps" else value != 0 or name not in _NOT_ZERO


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "too large"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _need(is_so: bool, what: str) -> None:
    if not is_so:
        raise Undescribed(what)


def _check_mixer(mixer: Mixer) -> None:
    columns = mixer.head_dim if isinstance(mixer, Attention) else mixer.rope_dim
    if mixer.rope is not None:
        rotated = 2 * len(mixer.rope.frequencies)
        _need(rotated <= columns, f"frequencies rotate {rotated} of {columns} columns")
    if isinstance(mixer, Attention):
        heads, kv_heads = mixer.num_heads, mixer.num_kv_heads
        _need(heads % kv_heads == 0, f"num_heads {heads} is no multiple of num_kv_heads {kv_heads}")


def _check_keys_of(mixer: Attention, index: int, before: Sequence[Layer]) -> None:
    """The other layer's keys and values are read as they are in its part of the cache."""
    _need(index < len(before), f"keys_of {index} is no earlier layer")
    other = before[index].mixer
    _need(
        isinstance(other, Attention)
        and other.keys_of is None
        and _of_keys(other) == _of_keys(mixer),
        f"keys_of {index} is a layer with other keys",
    )


def _of_keys(mixer: Attention) -> tuple[int, int, int, int | None]:
    return mixer.num_kv_heads, mixer.head_dim, mixer.value_dim, mixer.window


def _check_mixture(mixture: Mixture) -> None:
    experts, chosen, router = mixture.num_experts, mixture.per_token, mixture.router
    groups, best = router.num_groups, router.groups_chosen
    _need(chosen <= experts, f"per_token {chosen} is more than num_experts {experts}")
    if groups > 1:
        size, rest = divmod(experts, groups)
        _need(rest == 0, f"num_groups {groups} do not divide num_experts {experts}")
        _need(size > 1, f"num_groups {groups} of one expert have no two best")
        _need(best <= groups, f"groups_chosen {best} is more than num_groups {groups}")
        _need(chosen <= best * size, f"per_token {chosen} is more than the chosen groups have")


def _check_input(own: FeedForward | None, token: LayerInput | None, vocab_size: int) -> None:
    """A layer's input has the columns that its product gates, and a row for every token."""
    if own is None:
        return
    _need(token is not None and token.size == own.size, f"layer_input has no {own.size} columns")
    rows = 0 if token is None else token.vocab_size
    _need(rows >= vocab_size, f"layer_input has {rows} rows for a vocab_size of {vocab_size}")
