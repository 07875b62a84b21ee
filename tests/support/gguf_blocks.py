"""Random blocks of every type."""

from __future__ import annotations

import numpy as np

from core.gguf.blocks import BlockMatrix, BlockType

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
