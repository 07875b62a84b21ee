"""Kernels over rows of logits: edit some, draw a token, compute log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from core.kernels.cpu.bindings import Kernels


def best_tokens(kernels: Kernels, logits: torch.Tensor) -> torch.Tensor:
    """The best token of each row. ``core.sampling.greedy.greedy_tokens`` states the result.

    ``logits`` is float32 [num_rows, vocab_size].
    """
    logits = _rows(logits)
    tokens = torch.empty(len(logits), dtype=torch.int64)
    kernels.best(
        *(logits.data_ptr(), len(logits), logits.stride(0), logits.shape[1], tokens.data_ptr())
    )
    return tokens


def draw_rows(
    kernels: Kernels, logits: torch.Tensor, filters: torch.Tensor, random_bits: torch.Tensor
) -> torch.Tensor:
    """Sample one token per row. ``core.sampling.draw.RowDraw`` states arguments and result."""
    num_rows, vocab_size = logits.shape
    assert filters.shape == (4, num_rows), filters.shape
    assert len(random_bits) == num_rows, (len(random_bits), num_rows)
    assert logits.is_cpu, logits.device
    logits = _rows(logits.float())
    tokens = torch.empty(num_rows, dtype=torch.int64)
    kernels.draw(
        *(logits.data_ptr(), num_rows, logits.stride(0), vocab_size),
        *(filters.data_ptr(), random_bits.data_ptr(), tokens.data_ptr()),
    )
    return tokens


def logprob_lines(
    kernels: Kernels, logits: torch.Tensor, token_ids: torch.Tensor, num_top: int
) -> torch.Tensor:
    """Log-probabilities of ``token_ids`` and of the ``num_top`` most likely tokens of each row.

    ``core.sampling.logprobs.lines`` states arguments and result. float32 logits are not copied.
    """
    num_rows, vocab_size = logits.shape
    assert len(token_ids) == num_rows, (len(token_ids), num_rows)
    logits = _rows(logits.float())
    num_top = min(num_top, vocab_size)
    lines = torch.empty(num_rows, 1 + 2 * num_top, dtype=torch.float64)
    token_ids = token_ids.contiguous()
    kernels.logprobs(
        *(logits.data_ptr(), num_rows, logits.stride(0), vocab_size),
        *(token_ids.data_ptr(), num_top, lines.data_ptr()),
    )
    return lines


def _rows(x: torch.Tensor) -> torch.Tensor:
    assert x.dtype is torch.float32, x.dtype
    return x if x.stride(1) == 1 else x.contiguous()


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
