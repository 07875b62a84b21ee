"""Linear layers over stacked weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from core.fusion.joint import Stack, Weight, joint_qkv
from core.fusion.patterns import dense, matrix_of
from core.fusion.visitor import AttentionSite, Place, Replacement
from core.weights.roles import Matrix


class DenseWeight:
    """Stacked matrices with a common input, in the type of the model."""

    def __init__(self, matrices: list[Matrix]) -> None:
        self._weight = torch.cat([dense(weight) for weight, _ in matrices])
        self._bias = stacked_bias(matrices)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""
        return functional.linear(x, self._weight, self._bias)


class WeightLinear(nn.Module):
    """A linear layer over a stacked weight."""

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x)


def stacked_bias(matrices: list[Matrix]) -> torch.Tensor | None:
    """Return the biases of all rows, zero for matrices without one; None if none has one."""
    if all(bias is None for _, bias in matrices):
        return None
    return torch.cat(
        [dense(weight).new_zeros(len(weight)) if b is None else b for weight, b in matrices]
    )


def linear_pattern(stack: Stack, place: Place) -> Iterator[Replacement]:
    """A linear layer over a weight of ours, for quantised models."""
    matrix = matrix_of(place.module)
    if matrix is not None:
        fused = WeightLinear(stack([matrix]))
        yield Replacement({"linear": 1}, [place], [fused], matrix[0].shape[1], is_product=True)


def qkv_pattern(stack: Stack, site: AttentionSite) -> Iterator[Replacement]:
    """Query, key and value projections as one product."""
    return joint_qkv(stack, site, {"qkv": 1})
