"""keys_per_row: what attention of a prompt costs beside the products with weights."""

from __future__ import annotations

import math
from typing import Any

from core.load.layer_configs import layer_configs, number

_FULL = "full_attention"

_ATTENTION_RATE = 2 / 3
"""Attention's operations per second, as a part of those of products with weights. Measured on a
CPU: 0.8 with heads of 128, half with heads of 64."""


def keys_per_row(config: Any) -> float:
    """Return the keys whose attention costs a prompt's token as much as all its products do.

    ``config`` is that of the text model. Only layers that attend to everything count: a window
    costs a late token no more than others. Without the usual sizes attention counts nothing.
    """
    layers = layer_configs(config)
    widths = [_width(layer) for layer in layers]
    if not all(widths):
        return math.inf
    elements = sum(map(_elements, layers)) / len(layers)
    kinds = getattr(config, "layer_types", None) or [_kind(layer) for layer in layers]
    if len(layers) == 1:
        widths *= len(kinds)
    full = [width for width, kind in zip(widths, kinds, strict=False) if kind == _FULL]
    if not full:
        return math.inf
    return _ATTENTION_RATE * 2 * elements / (4 * sum(full) / len(kinds))


def _width(layer: Any) -> int:
    """The columns of all heads; 0 without the usual sizes."""
    hidden, heads = number(layer, "hidden_size"), number(layer, "num_attention_heads")
    if not hidden or not heads or hidden < heads:
        return 0
    return heads * (number(layer, "head_dim") or hidden // heads)


def _elements(layer: Any) -> int:
    """Those of the matrices that a token is multiplied by."""
    hidden, heads = number(layer, "hidden_size"), number(layer, "num_attention_heads")
    key_heads = number(layer, "num_key_value_heads") or heads
    inner = number(layer, "moe_intermediate_size") or number(layer, "intermediate_size")
    inner *= number(layer, "num_experts_per_tok") or 1
    matrices = 3 * inner if inner else 2 * 4 * hidden  # gated, or as GPT-2's
    return hidden * (2 * (heads + key_heads) * (_width(layer) // heads) + matrices)


def _kind(layer: Any) -> str:
    has_window = number(layer, "sliding_window") and getattr(layer, "use_sliding_window", True)
    return "sliding_attention" if has_window else _FULL
