"""linear_in_pieces: multiply by a weight of another type, some rows of it in float32 at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

PIECE = 1 << 19
"""Values of a weight that exist in float32 at a time: they stay in the caches of two cores."""


def linear_in_pieces(
    x: torch.Tensor, shape: tuple[int, int], put: Callable[[int, torch.Tensor], object]
) -> torch.Tensor:
    """Return ``x @ weight.T`` in float32 for a weight of the shape ``[rows, columns]``.

    ``x`` is float32 ``[..., columns]``. ``put(start, out)`` writes the weight's rows from ``start``
    to all of ``out``, contiguous float32 ``[some rows, columns]``.
    """
    num_rows, num_columns = shape
    step = max(1, PIECE // num_columns)
    piece = torch.empty(min(step, num_rows), num_columns)
    parts = []
    for start in range(0, num_rows, step):
        out = piece[: num_rows - start]
        put(start, out)
        parts.append(functional.linear(x, out))
    return torch.cat(parts, dim=-1)
