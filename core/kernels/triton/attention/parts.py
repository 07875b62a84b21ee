"""The tensors of one step that the attention kernels read, and how a context is split.

The tensors are int32 on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The splits of the decodes' contexts, for one sliding window."""

    first_tokens: torch.Tensor  # [num_rows]
    split_lens: torch.Tensor  # [num_rows]
    split_starts: torch.Tensor  # [num_rows + 1] cumulative number of splits
    max_num_splits: int  # of all sequences together, in any step of the plan
    may_merge: bool  # a sequence may have more than one split


@dataclass(frozen=True, slots=True)
class DecodePart:
    """Sequences with one query token, and padding rows, whose context is empty."""

    num_rows: int
    tokens: torch.Tensor  # [num_rows] row of query and output
    context_lens: torch.Tensor  # [num_rows]
    tables: torch.Tensor  # [num_rows, table_stride] flat
    table_stride: torch.Tensor  # [1]
    splits: Mapping[int | None, SplitPart]  # by sliding window


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """Sequences with several query tokens."""

    chunks: torch.Tensor  # [num_chunks, 4]: first query row, queries, context length, table
    tiles: Mapping[int, torch.Tensor]  # by tokens per tile: [num_tiles, 2]: chunk, first token
    tables: torch.Tensor
    table_stride: torch.Tensor


IntArray = npt.NDArray[np.int64]

SHORTEST_SPLIT = 256
"""Tokens. Long enough that program start and merge cost little, short enough that one sequence
spreads over the device."""

MAX_SPLITS = 32
"""Most splits of one sequence: one tile of the merge. Longer contexts get longer splits."""

FIRST_ALIGN = 16
"""The first split of a sliding window starts at a multiple of this."""


def first_tokens(context_lens: IntArray, window: int | None) -> IntArray:
    """Return the first token of each sequence's first split, at or before the first visible one."""
    if window is None:
        return np.zeros_like(context_lens)
    return np.maximum(context_lens - window, 0) // FIRST_ALIGN * FIRST_ALIGN


def split_lens(num_tokens: IntArray, shortest: int) -> IntArray:
    """Return the tokens per split: ``shortest``, doubled until ``MAX_SPLITS`` splits suffice."""
    too_long = np.maximum(-(-num_tokens // (shortest * MAX_SPLITS)), 1)
    _, doublings = np.frexp(too_long - 1)  # the bit length
    lens: IntArray = shortest << doublings.astype(np.int64)
    return lens


def max_num_splits(max_context: int, window: int | None, shortest: int) -> int:
    """Return the most splits of any context of up to ``max_context`` tokens."""
    num_tokens = max_context if window is None else min(max_context, window + FIRST_ALIGN - 1)
    return max(1, min(-(-num_tokens // shortest), MAX_SPLITS))
