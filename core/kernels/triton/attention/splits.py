"""How a context is cut into splits that different programs of the decode kernel read.

Everything here follows from one sequence's context length, so a sequence gets the same bits alone
and in any batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

SHORTEST_SPLIT = 256
"""Tokens: long enough that a program's start and the merge cost little beside its reading, short
enough that a single sequence spreads over the device."""

MAX_SPLITS = 32
"""Most splits of one sequence, all merged in one tile; longer contexts get longer splits."""

FIRST_ALIGN = 16
"""A window's first split begins at a multiple of this, so that whole rows of a block are read."""


def first_tokens(context_lens: IntArray, window: int | None) -> IntArray:
    """Where each sequence's first split begins: at or shortly before the first visible token."""
    if window is None:
        return np.zeros_like(context_lens)
    return np.maximum(context_lens - window, 0) // FIRST_ALIGN * FIRST_ALIGN


def split_lens(num_tokens: IntArray, shortest: int) -> IntArray:
    """Tokens of one split: ``shortest`` doubled until ``MAX_SPLITS`` of them are enough."""
    too_long = np.maximum(-(-num_tokens // (shortest * MAX_SPLITS)), 1)
    _, doublings = np.frexp(too_long - 1)  # the bit length
    lens: IntArray = shortest << doublings.astype(np.int64)
    return lens


def max_num_splits(max_context: int, window: int | None, shortest: int) -> int:
    """Most splits that any context of up to ``max_context`` tokens is cut into."""
    num_tokens = max_context if window is None else min(max_context, window + FIRST_ALIGN - 1)
    return max(1, min(-(-num_tokens // shortest), MAX_SPLITS))
