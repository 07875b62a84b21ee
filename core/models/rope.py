"""Frequencies of RoPE. The formulas are those of transformers' ``modeling_rope_utils``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from core.models.spec import Rope, Undescribed

Floats: TypeAlias = npt.NDArray[np.float32]


_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_LENGTH = "original_max_position_embeddings"
_KINDS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "ntk_alpha": ({"alpha"}, {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}),
    "proportional": (set(), set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor", _LENGTH}, set()),
    "yarn": (
        {_LENGTH},
        {"factor", "beta_fast", "beta_slow", "truncate", "attention_factor"}
        | {"mscale", "mscale_all_dim"},
    ),
    "longrope": ({"short_factor", "long_factor", _LENGTH}, {"factor", "attention_factor"}),
}
"""The keys that each kind needs, and those that it may have."""


@np.errstate(all="ignore")  # check_spec refuses what is not finite
def rope_of(
    parameters: Mapping[str, Any],
    head_dim: int,
    *,
    max_position: int,
    max_model_len: int,
    pairs: Literal["halves", "neighbours"] = "halves",
) -> Rope:
    """Resolve ``rope_parameters`` for heads of ``head_dim`` columns and the served length.

    "longrope" has long factors if ``max_model_len`` exceeds the length of its pretraining. Raises
    Undescribed.
    """
    p = {key: value for key, value in parameters.items() if value is not None}
    kind = p.get("rope_type", p.get("type", "default"))
    if kind not in _KINDS:
        raise Undescribed(f"rope_type is {kind!r}")
    needed, optional = _KINDS[kind]
    if unknown := sorted(p.keys() - needed - optional - _COMMON):
        raise Undescribed(f"rope_parameters have {unknown[0]}, which {kind} does not use")
    if missing := sorted((needed | {"rope_theta"}) - p.keys()):
        raise Undescribed(f"rope_parameters of type {kind} have no {missing[0]}")
    part, base = p.get("partial_rotary_factor", 1.0), p["rope_theta"]
    if kind == "ntk_alpha":
        base *= p["alpha"] ** (head_dim / (head_dim - 2))
    width = head_dim if kind == "proportional" else int(head_dim * part)
    plain, scale = _powers(base, width, head_dim), 1.0
    match kind:
        case "linear":
            plain = plain / np.float32(p["factor"])
        case "proportional":
            plain[int(part * head_dim // 2) :] = 0
        case "llama3":
            plain = _llama3(p, plain)
        case "yarn":
            plain, scale = _yarn(p, plain, max_position)
        case "longrope":
            plain, scale = _longrope(p, plain, max_position, max_model_len)
    return Rope(tuple(plain.tolist()), scale, pairs)


def _powers(base: float, width: int, head_dim: int) -> Floats:
    """The frequencies of ``width`` columns of a head, rounded where torch rounds them."""
    if not 1 < width <= head_dim:
        raise Undescribed(f"RoPE rotates {width} of {head_dim} columns")
    if not 0 < base < math.inf:
        raise Undescribed(f"the base of RoPE is {base}")
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    powers = np.power(float(base), exponents.astype(np.float64)).astype(np.float32)
    frequencies: Floats = np.reciprocal(powers)
    return frequencies


def _llama3(p: Mapping[str, Any], plain: Floats) -> Floats:
    """Long waves are stretched, short ones stay, those between are blended."""
    length, low, high = p[_LENGTH], p["low_freq_factor"], p["high_freq_factor"]
    waves = np.float32(2 * math.pi) / plain
    blend = np.clip((length / waves - low) / (high - low), 0, 1).astype(np.float32)
    blended: Floats = (1 - blend) * plain / np.float32(p["factor"]) + blend * plain
    return blended


def magnitude(factor: float, strength: float = 1.0) -> float:
    """The scale that YaRN has for a context of ``factor`` times the length of the pretraining."""
    return 0.1 * strength * math.log(factor) + 1.0 if factor > 1 else 1.0


def _factor(p: Mapping[str, Any], max_position: int) -> float:
    """The longest context divided by the length of the pretraining. Raises Undescribed."""
    if not p.get("factor") and not max_position:
        raise Undescribed("neither factor nor max_position_embeddings is given")
    return float(p.get("factor") or max_position / p[_LENGTH])


def _yarn(p: Mapping[str, Any], plain: Floats, max_position: int) -> tuple[Floats, float]:
    length, width = p[_LENGTH], 2 * len(plain)
    factor = _factor(p, max_position)

    def column(rotations: float) -> float:
        """The column that rotates so many times in ``length`` positions."""
        turns = length / (rotations * 2 * math.pi)
        return width * math.log(turns) / (2 * math.log(p["rope_theta"]))

    first, last = column(p.get("beta_fast") or 32), column(p.get("beta_slow") or 1)
    if p.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    columns = np.arange(len(plain), dtype=np.float32)
    ramp = np.clip((columns - first) / (last - first or 0.001), 0, 1).astype(np.float32)
    scale = p.get("attention_factor")
    if scale is None:
        scale = magnitude(factor)
        if p.get("mscale") and p.get("mscale_all_dim"):
            scale = magnitude(factor, p["mscale"]) / magnitude(factor, p["mscale_all_dim"])
    return plain / np.float32(factor) * ramp + plain * (1 - ramp), scale


def _longrope(
    p: Mapping[str, Any], plain: Floats, max_position: int, max_model_len: int
) -> tuple[Floats, float]:
    length = p[_LENGTH]
    factor = _factor(p, max_position)
    scale = p.get("attention_factor")
    if scale is None:
        scale = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
    factors = p["long_factor"] if max_model_len > length else p["short_factor"]
    divisors: Floats = np.array(factors, dtype=np.float32)
    if len(divisors) != len(plain):
        raise Undescribed(f"rope_parameters have {len(divisors)} factors for {len(plain)} pairs")
    return plain / divisors, scale
