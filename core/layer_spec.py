"""LayerSpec: the shapes of one attention layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer, as observed in the model's own forward pass.

    A query attends to the last ``sliding_window`` tokens including its own; None is all.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    sliding_window: int | None
