"""LayerSpec: the shapes of one attention layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer, as observed in the model's own forward pass.

    A query attends to the last ``sliding_window`` tokens including its own; None is all.
    ``softcap`` bounds the scaled scores: each becomes ``softcap * tanh(score / softcap)``.
    ``sinks`` ``[num_heads]``, float32 on the model's device, is one more score of each head: it
    takes its share of the softmax and has no value. Specs that differ only in it are equal.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    sliding_window: int | None
    softcap: float | None = None
    sinks: torch.Tensor | None = field(default=None, compare=False, repr=False)
