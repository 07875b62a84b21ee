"""How contexts are split for the decode kernel."""

import numpy as np
import pytest

pytest.importorskip("triton")

from core.kernels.triton.attention.parts import (
    FIRST_ALIGN,
    MAX_SPLITS,
    first_tokens,
    max_num_splits,
    split_lens,
)

CONTEXTS = np.concatenate([np.arange(2000), np.arange(8000, 300_000, 777)])


@pytest.mark.parametrize("window", [None, 1, 7, 512, 4096])
def test_the_first_split_covers_the_window_and_is_aligned(window):
    first = first_tokens(CONTEXTS, window)
    assert (first % FIRST_ALIGN == 0).all()
    visible = CONTEXTS if window is None else np.minimum(CONTEXTS, window)
    assert (first <= CONTEXTS - visible).all()
    assert (CONTEXTS - first < visible + FIRST_ALIGN).all()


@pytest.mark.parametrize("shortest", [16, 256])
def test_splits_are_at_most_max_splits_and_no_longer_than_needed(shortest):
    lens = split_lens(CONTEXTS, shortest)
    assert (lens % shortest == 0).all()
    assert (-(-CONTEXTS // lens) <= MAX_SPLITS).all()
    is_longer = lens > shortest
    assert (-(-CONTEXTS // (lens // 2)) > MAX_SPLITS)[is_longer].all()
    assert is_longer.any()


@pytest.mark.parametrize("window", [None, 7, 1000])
def test_max_num_splits_bounds_every_shorter_context(window):
    for most in (1, 5, 16, 17, 256, 257, 600, 1999):
        contexts = np.extract(most >= CONTEXTS, CONTEXTS)
        num_tokens = contexts - first_tokens(contexts, window)
        num_splits = -(-num_tokens // split_lens(num_tokens, 16))
        bound = max_num_splits(most, window, 16)
        assert num_splits.max() <= bound <= MAX_SPLITS
