from __future__ import annotations

import pytest
import torch

from core.sampling.best import argmax, topk
from tests.core.sampling.builders import make_logits
from tests.support.each import each

SIZES = [1, 7, 4096, 32_768, 32_768 + 200, 50_257]


@each("vocab_size", SIZES)
@each("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_argmax_is_the_first_maximum(vocab_size, dtype):
    x = make_logits(5, vocab_size).to(dtype)  # in 16 bits the maximum often has ties
    expected = [int((row == row.max()).nonzero()[0]) for row in x]
    assert argmax(x).tolist() == expected


@pytest.mark.parametrize("vocab_size", [32_768, 50_257])
def test_argmax_of_ties_across_blocks_is_the_lowest_id(vocab_size):
    x = torch.zeros(4, vocab_size)
    x[1, 300:] = 1.0
    x[2, vocab_size - 1] = 1.0
    x[3, [5000, vocab_size - 1]] = 2.0
    assert argmax(x).tolist() == [0, 300, vocab_size - 1, 5000]


@pytest.mark.parametrize("vocab_size", [4096, 50_257])
def test_argmax_returns_the_position_of_nan(vocab_size):
    x = make_logits(3, vocab_size)
    x[0, 17] = x[1, vocab_size - 1] = torch.nan
    assert argmax(x)[:2].tolist() == [17, vocab_size - 1]
    assert argmax(x)[2] == x[2].argmax()


@each("vocab_size", SIZES)
@each("is_coarse", [False, True])
def test_topk_finds_the_largest_values(vocab_size, is_coarse):
    x = make_logits(5, vocab_size)
    if is_coarse:
        x = x.round()
    k = min(128, vocab_size)
    values, ids = topk(x, k)
    assert torch.equal(values, x.sort(dim=1, descending=True).values[:, :k])
    assert torch.equal(x.gather(1, ids), values)
    assert all(len(set(row)) == k for row in ids.tolist())


def test_topk_with_most_logits_masked():
    x = torch.full((2, 50_257), -torch.inf)
    x[0, [3, 50_000, 50_256]] = torch.tensor([1.0, 2.0, 3.0])
    values, ids = topk(x, 128)
    assert ids[0, :3].tolist() == [50_256, 50_000, 3]
    assert torch.isneginf(values[0, 3:]).all()
    assert torch.isneginf(values[1]).all()
