"""Feed-forward blocks: gate and up as one product, activations as one operation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from core.fusion.cuda.ops import TritonOps
from core.fusion.joint import Stack, Weight
from core.fusion.patterns import Activation, activation, gated_mlp
from core.fusion.visitor import Place, Replacement


class FusedGatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` with gate and up as one product."""

    def __init__(self, gate_up: Weight, act: Activation, down: nn.Module, ops: TritonOps) -> None:
        super().__init__()
        self.down_proj = down
        self._gate_up = gate_up
        self._activation: Activation = act
        self._ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., hidden_size]``."""
        gated = self._ops.gated(self._gate_up.multiply(x), self._activation)
        output: torch.Tensor = self.down_proj(gated)
        return output


def mlp_pattern(ops: TritonOps, stack: Stack, place: Place) -> Iterator[Replacement]:
    """A gated feed-forward block."""
    found = gated_mlp(place.module)
    if found is not None:
        gate_up = stack([found.gate, found.up])
        fused = FusedGatedMLP(gate_up, found.activation, found.down, ops)
        yield Replacement({"mlp": 1}, [place], [fused], found.gate[0].shape[1], is_product=True)


def activation_pattern(place: Place) -> Iterator[Replacement]:
    """torch's GELU in place of one that is written out as many operations."""
    kind = type(place.module)
    is_written_out = "GELU" in kind.__name__.upper() and kind is not nn.GELU
    if is_written_out and activation(place.module) == "gelu_tanh":
        fused = nn.GELU(approximate="tanh")
        yield Replacement({"activation": 1}, [place], [fused], 64, is_product=False)
