"""Linear layers on packed weights: alone, or several that read the same input as one."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from core.kernels.cpu.linear import Epilogue, PackedWeight


class PackedLinear(nn.Module):
    """``epilogue(x @ weight.T + bias)``; float32 in and out. Core thread only."""

    def __init__(self, weight: PackedWeight, epilogue: Epilogue = Epilogue.NONE) -> None:
        super().__init__()
        self._weight = weight
        self._epilogue = epilogue

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x, self._epilogue)


class PackedHead(nn.Module):
    """The output layer; its result lies in one buffer that every call writes again.

    Logits are the largest tensor of a step, and new memory of that size costs more than the
    sampler does. Core thread only; a result is good until the next call.
    """

    def __init__(self, weight: PackedWeight) -> None:
        super().__init__()
        self._weight = weight
        self._buffer = torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        shape = (*x.shape[:-1], self._weight.num_rows)
        size = x.numel() // self._weight.num_columns * self._weight.num_rows
        if self._buffer.numel() < size:
            self._buffer = torch.empty(size)
        return self._weight.multiply(x, out=self._buffer[:size].view(shape))


class PackedEmbedding(nn.Module):
    """An embedding that shares its packed weight with the output layer."""

    def __init__(self, weight: PackedWeight) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up int64 ``ids``; float32 ``[*ids.shape, num_columns]``."""
        return self._weight.rows(ids)


class PlainEmbedding(nn.Module):
    """An embedding kept in the type that it was loaded in, and read as float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self._table = [weight]  # in a list, since it is to stay out of ``Module.float()``

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up ``ids``; float32 ``[*ids.shape, dim]``."""
        return nn.functional.embedding(ids, self._table[0]).float()


class JointProduct:
    """Several linear layers with one input, computed as one product when the first is called.

    Attention asks its query, key and value projections for their parts one after the other, with
    the very same tensor.
    """

    def __init__(self, weight: PackedWeight, widths: list[int]) -> None:
        self._weight = weight
        self._widths = widths
        self._input: weakref.ref[torch.Tensor] | None = None
        self._parts: list[torch.Tensor | None] = [None] * len(widths)

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Columns of the ``index``-th layer; each is handed out once."""
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
        """Multiply ``[..., in_features]``; the result is a slice of the joint one."""
        part: torch.Tensor = self._product.part(self._index, x)
        return part
