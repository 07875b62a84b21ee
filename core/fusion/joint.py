"""Linear layers with a common input as one product."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from core.fusion.patterns import QKV, qkv_matrices
from core.fusion.visitor import AttentionSite, Place, Replacement
from core.weights.roles import Matrix


class Weight(Protocol):
    """Stacked matrices with their biases, stored in a format of a device."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""


Stack = Callable[[list[Matrix]], Weight]
"""Stores matrices with a common input as one weight."""


class JointProduct:
    """Linear layers with a common input. The first one called computes the product of all.

    Attention calls its query, key and value projections in turn with the same tensor. Core thread
    only.
    """

    def __init__(self, weight: Weight, widths: list[int]) -> None:
        """``widths`` are the output features of each layer."""
        self._weight = weight
        self._widths = widths
        self._input: weakref.ref[torch.Tensor] | None = None
        self._parts: list[torch.Tensor | None] = [None] * len(widths)

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return the columns of one layer; a second call for them computes the product again."""
        kept = self._parts[index]
        if kept is None or self._input is None or self._input() is not x:
            self._parts = list(torch.split(self._weight.multiply(x), self._widths, dim=-1))
            self._input = weakref.ref(x)
            kept = self._parts[index]
            assert kept is not None
        self._parts[index] = None
        return kept


class JointLinear(nn.Module):
    """One of the layers of a JointProduct."""

    def __init__(self, product: JointProduct, index: int) -> None:
        super().__init__()
        self._product: Any = product
        self._index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``; returns a slice of the joint product."""
        part: torch.Tensor = self._product.part(self._index, x)
        return part


def joint_qkv(
    stack: Stack, site: AttentionSite, counts: Mapping[str, int]
) -> Iterator[Replacement]:
    """Query, key and value projections as one product with the weight that ``stack`` makes."""
    matrices = qkv_matrices(site.attention)
    if matrices is None:
        return
    product = JointProduct(stack(matrices), [len(weight) for weight, _ in matrices])
    yield Replacement(
        counts,
        [Place(site.attention, name) for name in QKV],
        [JointLinear(product, index) for index in range(len(QKV))],
        size=matrices[0][0].shape[1],
        is_product=True,
    )
