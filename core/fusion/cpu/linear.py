"""Linear layers with packed weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from core.fusion.joint import joint_qkv
from core.fusion.patterns import QKV, matrix_of
from core.fusion.visitor import AttentionSite, Place, Replacement
from core.kernels.cpu.linear import Epilogue, PackedWeight
from core.weights.packer import Packer


class PackedLinear(nn.Module):
    """``epilogue(x @ weight.T + bias)``; float32 in and out. Core thread only."""

    def __init__(self, weight: PackedWeight, epilogue: Epilogue = Epilogue.NONE) -> None:
        super().__init__()
        self._weight = weight
        self._epilogue = epilogue

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x, self._epilogue)


def linear_pattern(packer: Packer, place: Place) -> Iterator[Replacement]:
    """A linear layer with packed weights."""
    matrix = matrix_of(place.module)
    if matrix is not None:
        fused = PackedLinear(packer.stack([matrix]))
        yield Replacement({"linear": 1}, [place], [fused], matrix[0].shape[1], is_product=True)


def qkv_pattern(packer: Packer, site: AttentionSite) -> Iterator[Replacement]:
    """Query, key and value projections as one product."""
    return joint_qkv(packer.stack, site, {"linear": len(QKV)})
