"""Feed-forward blocks with the activation in the first product."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from core.fusion.patterns import Activation, Gate, gated_mlp, matrix_of, plain_mlp
from core.fusion.visitor import Place, Replacement
from core.kernels.cpu.linear import Epilogue, PackedWeight
from core.weights.packer import Packer

_PLAIN: dict[Activation, Epilogue] = {"silu": Epilogue.SILU, "gelu_tanh": Epilogue.GELU_TANH}
GATED: dict[Gate, Epilogue] = {
    "silu": Epilogue.SILU_GATE,
    "gelu_tanh": Epilogue.GELU_TANH_GATE,
    "clamped": Epilogue.CLAMPED_GATE,
}
"""Epilogues of gated products, by their gate."""


class FusedMLP(nn.Module):
    """``second(epilogue(first(x)))``; float32 in and out. Core thread only."""

    def __init__(self, first: PackedWeight, epilogue: Epilogue, second: PackedWeight) -> None:
        super().__init__()
        self.first = first
        self.epilogue = epilogue
        self.second = second

    def fits(self, hidden_size: int) -> bool:
        """Whether it maps rows of so many values to such rows."""
        return self.first.num_columns == self.second.num_rows == hidden_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., hidden_size]``."""
        return self.second.multiply(self.first.multiply(x, self.epilogue))


def fused_mlp(packer: Packer, module: nn.Module) -> FusedMLP | None:
    """Pack a feed-forward block whose activation the kernel knows."""
    gated = gated_mlp(module)
    if gated is not None:
        down = matrix_of(gated.down)
        if down is None or down[0].shape[1] != len(gated.up[0]):
            return None
        first = packer.interleave(gated.gate, gated.up)
        if first is None:
            return None
        return FusedMLP(first, GATED[gated.activation], packer.stack([down]))
    plain = plain_mlp(module)
    if plain is None:
        return None
    first = packer.stack([plain.first])
    return FusedMLP(first, _PLAIN[plain.activation], packer.stack([plain.second]))


def mlp_pattern(packer: Packer, place: Place) -> Iterator[Replacement]:
    """A feed-forward block with packed weights."""
    fused = fused_mlp(packer, place.module)
    if fused is not None:
        size = fused.first.num_columns
        yield Replacement({"mlp": 1}, [place], [fused], size, is_product=True)
