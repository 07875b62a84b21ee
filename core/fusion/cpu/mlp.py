"""The feed-forward block with its activation inside the first product."""

from __future__ import annotations

import torch
from torch import nn

from core.kernels.cpu.linear import Epilogue, PackedWeight


class FusedMLP(nn.Module):
    """``second(epilogue(first(x)))``; float32 in and out. Core thread only."""

    def __init__(self, first: PackedWeight, epilogue: Epilogue, second: PackedWeight) -> None:
        super().__init__()
        self.first = first
        self.epilogue = epilogue
        self.second = second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., hidden_size]``."""
        return self.second.multiply(self.first.multiply(x, self.epilogue))
