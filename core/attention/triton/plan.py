"""StepPlan: the numbers of one step that the kernels read, packed in one array of int32 words.

A step has decodes (sequences that compute one token) and chunks (sequences that compute several).
Every array starts at a multiple of 16 bytes. The block tables come last, so the offsets of the
other arrays of a decode plan depend only on its number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.batch.model_input import ModelInput
from core.kernels.triton.attention.parts import (
    ChunkPart,
    DecodePart,
    IntArray,
    SplitPart,
    first_tokens,
    split_lens,
)
from core.system.pinned import WordArray

ALIGN = 4
"""Words: 16 bytes."""

Arrays: TypeAlias = dict[str, IntArray]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that the kernels of one step need besides the states."""

    slots: torch.Tensor  # [num_tokens] integers; a negative slot is not written
    decodes: DecodePart | None
    chunks: ChunkPart | None
    partials: torch.Tensor  # float32: partial results of the decodes, for the merge


class Layout:
    """Offsets of named arrays in the words, in the given order."""

    def __init__(self, arrays: Arrays) -> None:
        self._places: dict[str, slice] = {}
        self.num_words = 0
        for name, array in arrays.items():
            self._places[name] = slice(self.num_words, self.num_words + array.size)
            self.num_words += -(-array.size // ALIGN) * ALIGN

    def fill(self, arrays: Arrays, words: WordArray) -> None:
        """Copy ``arrays`` to their places in ``words``."""
        for name, array in arrays.items():
            words[self._places[name]] = array.reshape(-1)

    def put(self, name: str, array: npt.ArrayLike, words: WordArray) -> None:
        """Copy ``array`` to the start of the place of ``name``."""
        start = self._places[name].start
        words[start : start + np.size(array)] = array

    def view(self, name: str, words: torch.Tensor) -> torch.Tensor:
        """Return the array ``name``, flat, as a view of ``words``."""
        return words[self._places[name]]


def split_arrays(
    context_lens: IntArray, windows: Iterable[int | None], shortest_split: int
) -> tuple[Arrays, dict[int | None, tuple[int, bool]]]:
    """Return the arrays of the SplitPart of every window, and its totals.

    The totals of a window are its number of splits and whether any sequence has more than one. An
    empty context has one empty split, so its row of the output is written, with zeros.
    """
    arrays: Arrays = {}
    totals: dict[int | None, tuple[int, bool]] = {}
    for window in windows:
        first = first_tokens(context_lens, window)
        num_tokens = context_lens - first
        lens = split_lens(num_tokens, shortest_split)
        num_splits = np.maximum(-(-num_tokens // lens), 1)
        starts = np.zeros(len(context_lens) + 1, dtype=np.int64)
        np.cumsum(num_splits, out=starts[1:])
        arrays[f"first_tokens {window}"] = first
        arrays[f"split_lens {window}"] = lens
        arrays[f"split_starts {window}"] = starts
        total = int(starts[-1])
        totals[window] = total, total > len(context_lens)
    return arrays, totals


def decode_part(
    layout: Layout,
    words: torch.Tensor,
    num_rows: int,
    totals: Mapping[int | None, tuple[int, bool]],
) -> DecodePart:
    """Build the DecodePart whose arrays are in ``words``."""
    return DecodePart(
        num_rows=num_rows,
        tokens=layout.view("tokens", words),
        context_lens=layout.view("context_lens", words),
        tables=layout.view("tables", words),
        table_stride=layout.view("table_stride", words),
        splits={
            window: SplitPart(
                first_tokens=layout.view(f"first_tokens {window}", words),
                split_lens=layout.view(f"split_lens {window}", words),
                split_starts=layout.view(f"split_starts {window}", words),
                max_num_splits=total,
                may_merge=may_merge,
            )
            for window, (total, may_merge) in totals.items()
        },
    )


def chunk_part(layout: Layout, words: torch.Tensor, tile_sizes: Iterable[int]) -> ChunkPart:
    """Build the ChunkPart whose arrays are in ``words``."""
    return ChunkPart(
        chunks=layout.view("chunks", words),
        tiles={size: layout.view(f"tiles {size}", words) for size in tile_sizes},
        tables=layout.view("tables", words),
        table_stride=layout.view("table_stride", words),
    )


def chunk_arrays(
    batch: ModelInput, sequences: IntArray, first_table: int, tile_sizes: Iterable[int]
) -> Arrays:
    """Return the arrays of the ChunkPart of ``sequences``, whose tables start at ``first_table``.

    Tiles with the longest contexts come first, so that no program works alone at the end.
    """
    starts = batch.query_starts[sequences]
    counts = batch.query_starts[sequences + 1] - starts
    lens = batch.context_lens[sequences]
    tables = first_table + np.arange(len(sequences))
    arrays: Arrays = {"chunks": np.stack([starts, counts, lens, tables], axis=1)}
    for size in tile_sizes:
        num_tiles = -(-counts // size)
        chunk = np.repeat(np.arange(len(sequences)), num_tiles)
        place = np.arange(len(chunk)) - np.repeat(np.cumsum(num_tiles) - num_tiles, num_tiles)
        first = place * size
        order = np.argsort(-((lens - counts)[chunk] + first), kind="stable")
        arrays[f"tiles {size}"] = np.stack([chunk[order], first[order]], axis=1)
    return arrays
