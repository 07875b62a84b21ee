"""Rows of matrices: parts of them, and other orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from core.gguf.blocks import BlockMatrix
from core.models.spec import Rope, Undescribed
from core.weights.roles import Group, Weight


def split(parts: Sequence[Weight], sizes: Sequence[int]) -> list[Weight]:
    """The same rows in matrices of these sizes, without a copy. Raises Undescribed."""
    found = [len(part) for part in parts]
    if found == list(sizes):
        return list(parts)
    if len(parts) > 1:
        raise Undescribed(f"matrices have {found} rows, not {list(sizes)}")
    [part] = parts
    ends = np.cumsum(sizes).tolist()
    starts = [end - size for end, size in zip(ends, sizes, strict=True)]
    if isinstance(part, BlockMatrix):
        return [part.part(start, end) for start, end in zip(starts, ends, strict=True)]
    return list(torch.split(part, list(sizes)))


def split_groups(parts: Sequence[Group], count: int, size: int) -> list[Group]:
    """Gates and ups of all experts, ``size`` rows of each expert in both. Raises Undescribed."""
    if len(parts) == 2:
        gate = parts[0]
        found = len(gate) // count if isinstance(gate, BlockMatrix) else len(gate[0])
        if found != size:
            raise Undescribed(f"gates of experts have {found} rows, not {size}")
        return list(parts)
    [part] = parts
    if not isinstance(part, BlockMatrix):
        return [[matrix[:size] for matrix in part], [matrix[size:] for matrix in part]]
    rows = np.arange(len(part)).reshape(count, 2, size)
    return [part.taken(rows[:, half].reshape(-1)) for half in range(2)]


def halves(rope: Rope, head_dim: int, heads: int) -> torch.Tensor:
    """The rows of heads whose rotated columns are neighbours, in the order of halves."""
    rotated = 2 * len(rope.frequencies)
    own = torch.cat(
        [
            torch.arange(0, rotated, 2),
            torch.arange(1, rotated, 2),
            torch.arange(rotated, head_dim),
        ]
    )
    return (own + head_dim * torch.arange(heads)[:, None]).flatten()


def taken(weight: Weight, order: torch.Tensor) -> Weight:
    """The rows of a matrix in another order."""
    return weight.taken(order.numpy()) if isinstance(weight, BlockMatrix) else weight[order]


def kinds_of(weights: Sequence[Weight | Group]) -> str:
    """The types of matrices, for a message."""
    return " and ".join(
        weight.type.name if isinstance(weight, BlockMatrix) else str(weight[0].dtype)
        for weight in weights
    )
