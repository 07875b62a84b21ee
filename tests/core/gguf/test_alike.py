"""Matrices of different types in one that has the values of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.gguf.alike import alike
from core.gguf.blocks import (
    BF16,
    F16,
    F32,
    IQ4_NL,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    BlockMatrix,
    BlockType,
)
from core.gguf.values import reference_values
from tests.support.gguf_blocks import random_matrix

WIDER = [
    ((Q4_0, Q8_0), Q8_0),
    ((Q5_0, Q8_0), Q8_0),
    ((IQ4_NL, Q8_0), Q8_0),
    ((Q4_0, Q5_0), Q8_0),
    ((Q4_1, Q5_1), Q5_1),
    ((Q5_K, Q4_K), Q5_K),
    ((F16, BF16), F32),
]


def matrix(kind: BlockType, seed: int) -> BlockMatrix:
    if not kind.is_plain:
        return random_matrix(kind, 3, 512, seed)
    dtype = torch.float16 if kind is F16 else torch.bfloat16
    values = torch.randn(3, 512, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return BlockMatrix(kind, 3, 512, values.view(torch.uint8).numpy())


@pytest.mark.parametrize(("kinds", "wanted"), WIDER)
def test_values_stay_as_they_are(kinds: tuple[BlockType, ...], wanted: BlockType) -> None:
    matrices = [matrix(kind, i) for i, kind in enumerate(kinds)]
    found = alike(matrices)
    assert found is not None
    assert [each.type for each in found] == [wanted] * 2
    for before, after in zip(matrices, found, strict=True):
        assert torch.equal(reference_values(before), reference_values(after))


def test_matrices_of_one_type_stay() -> None:
    matrices = [matrix(Q4_0, 0), matrix(Q4_0, 1)]
    assert alike(matrices) == matrices


@pytest.mark.parametrize("kinds", [(Q4_K, Q6_K), (Q4_0, Q4_1), (Q8_0, BF16)])
def test_no_type_has_the_values_of_both(kinds: tuple[BlockType, ...]) -> None:
    assert alike([matrix(kind, 0) for kind in kinds]) is None


def test_every_code_is_kept() -> None:
    """Of a block with scale 1: all 16 or 32 codes."""
    for kind, start in ((Q4_0, 2), (Q5_0, 2), (IQ4_NL, 2)):
        data = np.random.default_rng(0).integers(0, 256, (64, kind.nbytes), np.uint8)
        data[:, :start] = np.array([0x00, 0x3C], np.uint8)
        one = BlockMatrix(kind, 64, 32, data)
        found = alike([one, random_matrix(Q8_0, 1, 32)])
        assert found is not None
        assert torch.equal(reference_values(one), reference_values(found[0]))
