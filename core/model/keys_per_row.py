"""keys_per_row: what attention of a prompt costs beside the products with weights."""

from __future__ import annotations

import math
from typing import Any

_ATTENTION_RATE = 2 / 3
"""Attention's operations per second, as a part of those of products with weights. Measured on a
CPU: 0.8 with heads of 128, half with heads of 64."""


def keys_per_row(config: Any) -> float:
    """Return the keys whose attention costs a prompt's token as much as all its products do.

    ``config`` is that of the text model. Only layers that attend to everything count: a window
    costs a late token no more than others. Without the usual sizes attention counts nothing.
    """
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    if not hidden or not heads or hidden < heads:
        return math.inf
    head_dim = _number(config, "head_dim") or hidden // heads
    key_heads = _number(config, "num_key_value_heads") or heads
    inner = _number(config, "moe_intermediate_size") or _number(config, "intermediate_size")
    inner *= _number(config, "num_experts_per_tok") or 1
    matrices = 3 * inner if inner else 2 * 4 * hidden  # gated, or as GPT-2's
    elements = hidden * (2 * (heads + key_heads) * head_dim + matrices)
    full = _part_of_full_attention(config)
    if not full:
        return math.inf
    return _ATTENTION_RATE * 2 * elements / (4 * heads * head_dim * full)


def _part_of_full_attention(config: Any) -> float:
    if kinds := getattr(config, "layer_types", None):
        return float(kinds.count("full_attention") / len(kinds))
    has_window = _number(config, "sliding_window") and getattr(config, "use_sliding_window", True)
    return 0.0 if has_window else 1.0


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) else 0
