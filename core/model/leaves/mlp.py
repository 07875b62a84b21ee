"""The feed-forward block with its activation inside the first product."""

from __future__ import annotations

import torch
from torch import nn

from core.kernels.linear import Epilogue, PackedWeight


class FusedMLP(nn.Module):
    """``second(epilogue(first(x)))``; float32 in and out. Core thread only."""

    def __init__(self, first: PackedWeight, epilogue: Epilogue, second: PackedWeight) -> None:
        super().__init__()
        self._first = first
        self._epilogue = epilogue
        self._second = second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., hidden_size]``."""
        return self._second.multiply(self._first.multiply(x, self._epilogue))
