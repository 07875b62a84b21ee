"""Linear layers over stacked weights: layers of one input, and gated feed-forward blocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from core.fusion.ops import TritonOps
from core.fusion.patterns import (
    QKV,
    Activation,
    Matrix,
    activation,
    gated_mlp,
    matrix_of,
    qkv_matrices,
)
from core.fusion.visitor import AttentionSite, Place, Replacement


class StackedWeight(Protocol):
    """Stacked matrices with their biases, in a storage type."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""


Stack = Callable[[list[Matrix]], StackedWeight]
"""Stores matrices with a common input as one weight."""


class JointProduct:
    """Linear layers with a common input. The first one called computes the product of all.

    Attention calls its query, key and value projections in turn with the same tensor. Core thread
    only.
    """

    def __init__(self, weight: StackedWeight, widths: list[int]) -> None:
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


def qkv_pattern(stack: Stack, site: AttentionSite) -> Iterator[Replacement]:
    """Query, key and value projections as one product with the weight that ``stack`` makes."""
    matrices = qkv_matrices(site.attention)
    if matrices is None:
        return
    product = JointProduct(stack(matrices), [len(weight) for weight, _ in matrices])
    yield Replacement(
        {"qkv": 1},
        [Place(site.attention, name) for name in QKV],
        [JointLinear(product, index) for index in range(len(QKV))],
        size=matrices[0][0].shape[1],
        is_product=True,
    )


class DenseWeight:
    """Stacked matrices with a common input, in the type of the model."""

    def __init__(self, matrices: list[Matrix]) -> None:
        self._weight = torch.cat([weight for weight, _ in matrices])
        self._bias = stacked_bias(matrices)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``."""
        return functional.linear(x, self._weight, self._bias)


class WeightLinear(nn.Module):
    """A linear layer over a stacked weight."""

    def __init__(self, weight: StackedWeight) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x)


def stacked_bias(matrices: list[Matrix]) -> torch.Tensor | None:
    """Return the biases of all rows, zero for matrices without one; None if none has one."""
    if all(bias is None for _, bias in matrices):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if b is None else b for weight, b in matrices])


def linear_pattern(stack: Stack, place: Place) -> Iterator[Replacement]:
    """A linear layer over a weight of ours, for quantised models."""
    matrix = matrix_of(place.module)
    if matrix is not None:
        fused = WeightLinear(stack([matrix]))
        yield Replacement({"linear": 1}, [place], [fused], matrix[0].shape[1], is_product=True)


class FusedGatedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` with gate and up as one product."""

    def __init__(
        self, gate_up: StackedWeight, act: Activation, down: nn.Module, ops: TritonOps
    ) -> None:
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
