"""The tensors of one step that the attention kernels read. All are int32 on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
