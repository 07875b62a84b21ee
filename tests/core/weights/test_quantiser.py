"""Matrices as blocks by role: the same types and bytes as by the names of modules."""

from __future__ import annotations

import pytest
import torch

from core.contract.errors import ModelLoadError
from core.gguf.blocks import Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BlockMatrix
from core.kernels.cpu.library import kernels
from core.weights.quantiser import Quantiser

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


def types(role: str, layer: int | None, *matrices: torch.Tensor) -> list[str]:
    assert KERNELS is not None
    found = Quantiser(KERNELS, 8).quantised(role, layer, matrices)
    return [part.type.name if isinstance(part, BlockMatrix) else "none" for part in found]


def test_the_mix_is_that_of_q4_k_m() -> None:
    wide, narrow, odd = torch.randn(16, 256), torch.randn(16, 96), torch.randn(16, 20)
    mixed = [Q6_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q6_K, Q6_K]  # the first, the last, every third
    for i, kind in enumerate(mixed):
        assert types("qkv", i, wide, wide, wide) == [Q4_K.name, Q4_K.name, kind.name]
        assert types("down", i, wide) == types("shared_down", i, wide) == [kind.name]
        assert types("up", i, wide, wide) == [Q4_K.name] * 2
    assert types("qkv", 0, wide) == [Q5_K.name]
    assert types("head", None, wide) == types("embedding", None, wide) == [Q6_K.name]
    assert types("head", None, narrow) == [Q8_0.name]
    assert types("up", 0, narrow) == types("qkv", 0, narrow) == [Q5_0.name]
    assert types("up", 0, odd) == ["none"]


def test_weights_that_are_not_finite_are_named() -> None:
    matrix = torch.randn(16, 256)
    matrix[2, 7] = torch.inf
    with pytest.raises(ModelLoadError, match="int4: output of layer 3 has weights that are not"):
        types("output", 3, matrix)
