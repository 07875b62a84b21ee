"""Kernels that edit single logits in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from core.kernels.cpu.bindings import Kernels

Entries: TypeAlias = tuple[int, int, int, int]
"""Row, number of entries, and the addresses of their token ids and values, both float64."""

Penalty: TypeAlias = tuple[float, float, float]
"""Repetition, frequency and presence penalty of a row."""


def bias(kernels: Kernels, logits: torch.Tensor, entries: Sequence[Entries]) -> None:
    """Add the values to ``logits``, float32 [num_rows, vocab_size] with contiguous rows.

    Ids outside the vocabulary are left out. The caller keeps what the addresses point to alive.
    """
    table = np.array(entries, dtype=np.int64)
    kernels.bias(*_matrix(logits), table.ctypes.data, len(entries))


def penalise(
    kernels: Kernels,
    logits: torch.Tensor,
    entries: Sequence[Entries],
    penalties: Sequence[Penalty],
) -> None:
    """Penalise tokens, of which the values say how often each occurs in the output. As ``bias``."""
    table, factors = np.array(entries, dtype=np.int64), np.array(penalties, dtype=np.float64)
    kernels.penalise(*_matrix(logits), table.ctypes.data, factors.ctypes.data, len(entries))


def _matrix(logits: torch.Tensor) -> tuple[int, int, int]:
    """Address, row stride and number of columns."""
    assert logits.dtype is torch.float32, logits.dtype
    assert logits.stride(1) == 1, logits.stride()
    return logits.data_ptr(), logits.stride(0), logits.shape[1]
