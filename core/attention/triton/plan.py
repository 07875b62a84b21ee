"""The numbers of one step that the kernels read, packed into one array of int32 words.

A step has two parts: sequences that compute one token (decodes) and sequences that compute more
(chunks). Every array begins at a multiple of 16 bytes, and the block tables come last, so that
where the others lie in a decode plan depends on its number of rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from core.kernels.triton.attention.parts import ChunkPart, DecodePart, SplitPart
from core.kernels.triton.attention.splits import IntArray, first_tokens, max_num_splits, split_lens
from core.model_input import ModelInput
from core.pinned import WordArray

_ALIGN = 4  # words

Arrays: TypeAlias = dict[str, IntArray]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything the kernels of one step need beside the states; all tensors are int32 words."""

    slots: torch.Tensor  # [num_tokens]; negative is written nowhere
    decodes: DecodePart | None
    chunks: ChunkPart | None
    partials: torch.Tensor  # float32: where the decodes leave what is to be merged


class Layout:
    """Where named arrays lie in the words, in the order they are given."""

    def __init__(self, arrays: Arrays) -> None:
        self._places: dict[str, slice] = {}
        self.num_words = 0
        for name, array in arrays.items():
            self._places[name] = slice(self.num_words, self.num_words + array.size)
            self.num_words += -(-array.size // _ALIGN) * _ALIGN

    def fill(self, arrays: Arrays, words: WordArray) -> None:
        """Copy ``arrays`` to their places in ``words``."""
        for name, array in arrays.items():
            words[self._places[name]] = array.reshape(-1)

    def put(self, name: str, array: npt.ArrayLike, words: WordArray) -> None:
        """Copy ``array`` to the beginning of the place of ``name``."""
        start = self._places[name].start
        words[start : start + np.size(array)] = array

    def view(self, name: str, words: torch.Tensor) -> torch.Tensor:
        """The array ``name`` as it lies in ``words``."""
        return words[self._places[name]]


def split_arrays(
    context_lens: IntArray, windows: Iterable[int | None], shortest_split: int
) -> tuple[Arrays, dict[int | None, tuple[int, bool]]]:
    """Arrays of every window's SplitPart; and for each all its splits, and if any are to merge.

    An empty context is one empty split, so that its row of the output is written, with zeros.
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
    """The decodes of a step whose arrays lie in ``words``."""
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
    """The chunks of a step whose arrays lie in ``words``."""
    return ChunkPart(
        chunks=layout.view("chunks", words),
        tiles={size: layout.view(f"tiles {size}", words) for size in tile_sizes},
        tables=layout.view("tables", words),
        table_stride=layout.view("table_stride", words),
    )


def chunk_arrays(
    batch: ModelInput, sequences: IntArray, first_table: int, tile_sizes: Iterable[int]
) -> Arrays:
    """Arrays of the ChunkPart of the batch's ``sequences``, whose tables follow one another.

    The tiles with most to read come first, so that no program is left working alone at the end.
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


class DecodePlan:
    """The plan of steps that decode up to ``num_rows`` sequences of up to ``max_context`` tokens.

    Made once; then every step fills it anew, and launches are the same each time: what a CUDA
    graph needs. ``step`` refers to ``words``, int32 on the device, and to what ``partials`` gives
    for its decodes; the plan keeps both alive.
    """

    def __init__(
        self,
        words: torch.Tensor,
        *,
        num_rows: int,
        max_context: int,
        block_size: int,
        windows: Iterable[int | None],
        shortest_split: int,
        partials: Callable[[DecodePart], torch.Tensor],
    ) -> None:
        assert len(words) >= decode_words(
            num_rows, max_context, block_size=block_size, windows=windows
        )
        self.num_rows = num_rows
        self.max_context = max_context
        self.words = words
        self._windows = tuple(windows)
        self._shortest_split = shortest_split
        nobody = np.zeros(num_rows, dtype=np.int64)
        splits, _ = split_arrays(nobody, self._windows, shortest_split)
        arrays: Arrays = {
            "table_stride": np.zeros(1, dtype=np.int64),
            "tokens": np.arange(num_rows),
            "context_lens": nobody,
            "slots": nobody - 1,
            **splits,
        }
        self._layout = Layout(arrays)
        self._padding = np.zeros(self._layout.num_words, dtype=np.int32)
        self._layout.fill(arrays, self._padding)
        totals: dict[int | None, tuple[int, bool]] = {}
        for window in self._windows:
            most = max_num_splits(max_context, window, shortest_split)
            totals[window] = num_rows * most, most > 1
        arrays["tables"] = np.zeros((num_rows, -(-max_context // block_size)), dtype=np.int64)
        layout = Layout(arrays)
        part = decode_part(layout, words, num_rows, totals)
        self.step = StepPlan(
            slots=layout.view("slots", words), decodes=part, chunks=None, partials=partials(part)
        )

    def fill(self, batch: ModelInput, words: WordArray) -> int:
        """Write a step into host memory; returns how many words of it are to be copied.

        Every sequence computes one token; rows beyond the batch's own are padding. Only what
        of ``batch`` is on the host is read.
        """
        lens, tables, layout = batch.context_lens, batch.block_tables, self._layout
        num_seqs, longest = len(lens), int(lens.max(initial=0))
        assert num_seqs <= self.num_rows
        assert len(batch.token_ids) == num_seqs, "a decode computes one token a sequence"
        assert longest <= self.max_context
        words[: layout.num_words] = self._padding
        layout.put("table_stride", tables.shape[1:], words)
        layout.put("context_lens", lens, words)
        layout.put("slots", batch.slots.numpy(), words)
        # where no context is longer than this, the splits are those of padding
        if longest > min(self._shortest_split, *(window or longest for window in self._windows)):
            context_lens = np.zeros(self.num_rows, dtype=np.int64)
            context_lens[:num_seqs] = lens
            splits, _ = split_arrays(context_lens, self._windows, self._shortest_split)
            layout.fill(splits, words)
        end = layout.num_words + tables.size
        words[layout.num_words : end] = tables.reshape(-1)
        return end


def decode_words(
    num_rows: int, max_context: int, *, block_size: int, windows: Iterable[int | None]
) -> int:
    """Words that a DecodePlan needs at most."""
    num_arrays = 3 + 3 * len(tuple(windows))
    table = num_rows * -(-max_context // block_size)
    return table + num_arrays * (num_rows + 1 + _ALIGN) + 2 * _ALIGN
