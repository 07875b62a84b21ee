"""Split contexts over the programs of the decode kernel.

The splits of a sequence depend only on its context length. So its result is bitwise the same alone
and in any batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
