"""Matrices of numbers as blocks of a type."""

from __future__ import annotations

import numpy as np
import torch

from core.contract.errors import ModelLoadError
from core.gguf.blocks import BlockMatrix, BlockType, Bytes
from core.gguf.values import PLAIN_TYPES
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import BlockFormat, quantise

_PIECE = 1 << 22
"""Values that exist in float32 at a time."""


def quantised(kernels: Kernels, kind: BlockType, weight: torch.Tensor, name: str) -> BlockMatrix:
    """Quantise a matrix ``[rows, columns]`` of any float type, whose columns divide into blocks.

    ``kind`` is Q4_K, Q5_K, Q6_K, Q5_0 or Q8_0. Raises ModelLoadError that names the matrix if a
    value is not finite.
    """
    num_rows, num_columns = weight.shape
    fmt = BlockFormat.of(kind.code)
    assert fmt is not None
    data = np.empty((num_rows, kind.row_nbytes(num_columns)), np.uint8)
    step = max(1, _PIECE // num_columns)
    for start in range(0, num_rows, step):
        piece = weight[start : start + step].float()
        if not bool(piece.isfinite().all()):
            raise ModelLoadError(f"{name} has weights that are not finite")
        data[start : start + step] = quantise(kernels, fmt, piece)
    return BlockMatrix(kind, num_rows, num_columns, data)


def plain(kind: BlockType, weight: torch.Tensor, name: str) -> BlockMatrix:
    """Round a matrix to F32, F16 or BF16.

    Raises ModelLoadError that names the matrix if a finite value becomes infinite.
    """
    values = weight.to(PLAIN_TYPES[kind]).contiguous()
    if not torch.equal(values.isinf(), weight.isinf()):
        raise ModelLoadError(f"{name} has weights that are too large for {kind.name}")
    num_rows, num_columns = weight.shape
    data: Bytes = values.view(torch.uint8).numpy()
    return BlockMatrix(kind, num_rows, num_columns, data)
