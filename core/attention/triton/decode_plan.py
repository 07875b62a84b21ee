"""PackedDecodePlan: the decode plan that CUDA graphs replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from core.attention.triton.plan import ALIGN, Arrays, Layout, StepPlan, decode_part, split_arrays
from core.batch.model_input import ModelInput
from core.kernels.triton.attention.parts import DecodePart, max_num_splits
from core.system.pinned import WordArray


class PackedDecodePlan:
    """See DecodePlan. Decodes up to ``num_rows`` sequences of up to ``max_context`` tokens each.

    ``step`` has the same tensors, and so the same launches, for every step: grid sizes depend only
    on ``num_rows`` and ``max_context``. The plan keeps ``words`` and the memory that ``partials``
    returns for its decodes alive.
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
        zeros = np.zeros(num_rows, dtype=np.int64)
        splits, _ = split_arrays(zeros, self._windows, shortest_split)
        arrays: Arrays = {
            "table_stride": np.zeros(1, dtype=np.int64),
            "tokens": np.arange(num_rows),
            "context_lens": zeros,
            "slots": zeros - 1,
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
        lens, tables, layout = batch.context_lens, batch.block_tables, self._layout
        num_seqs, longest = len(lens), int(lens.max(initial=0))
        assert num_seqs <= self.num_rows
        assert len(batch.token_ids) == num_seqs, "a decode computes one token per sequence"
        assert longest <= self.max_context
        words[: layout.num_words] = self._padding
        layout.put("table_stride", tables.shape[1:], words)
        layout.put("context_lens", lens, words)
        layout.put("slots", batch.slots.numpy(), words)
        # contexts up to this length have the splits of padding
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
    """Upper bound of the words of a PackedDecodePlan."""
    num_arrays = 3 + 3 * len(tuple(windows))
    table = num_rows * -(-max_context // block_size)
    return table + num_arrays * (num_rows + 1 + ALIGN) + 2 * ALIGN
