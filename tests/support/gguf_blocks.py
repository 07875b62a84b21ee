"""Random blocks of every type."""

from __future__ import annotations

import numpy as np

from core.gguf.blocks import Q8_0, BlockMatrix, BlockType

_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
}
"""Where a block of each type has float16 numbers."""


def random_matrix(kind: BlockType, rows: int, columns: int, seed: int = 0) -> BlockMatrix:
    """A matrix of random codes whose scales are small float16 numbers of both signs."""
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, (rows, kind.row_nbytes(columns)), np.uint8)
    blocks = data.reshape(-1, kind.nbytes)
    for at in _HALVES[kind.name]:
        halves = generator.normal(0, 0.02, (len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = halves.view(np.uint8)
    return BlockMatrix(kind, rows, columns, data)


def q8_0(values: np.ndarray) -> BlockMatrix:
    """Round a float32 matrix to Q8_0."""
    rows, columns = values.shape
    blocks = values.reshape(-1, Q8_0.size)
    scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
    inverse = np.divide(1, scales, where=scales > 0, out=np.zeros_like(scales, np.float32))
    codes = np.rint(blocks * inverse).clip(-127, 127).astype(np.int8)
    data = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=1)
    return BlockMatrix(Q8_0, rows, columns, data.reshape(rows, -1))
