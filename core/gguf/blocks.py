"""Block types of GGUF files, and matrices in the blocks of their file.

Numbers and layouts of the types: ggml's ``ggml.h`` and ``ggml-common.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockType:
    """A format of blocks: ``size`` consecutive values of a row are stored in ``nbytes`` bytes."""

    name: str
    code: int  # ggml's number
    size: int
    nbytes: int

    @property
    def is_plain(self) -> bool:
        """True if a block is one floating-point value."""
        return self.size == 1

    def row_nbytes(self, columns: int) -> int:
        """Bytes of a row of ``columns`` values, a multiple of ``size``."""
        assert columns % self.size == 0, (self.name, columns)
        return columns // self.size * self.nbytes


F32 = BlockType("F32", 0, 1, 4)
F16 = BlockType("F16", 1, 1, 2)
BF16 = BlockType("BF16", 30, 1, 2)
Q4_0 = BlockType("Q4_0", 2, 32, 18)
Q4_1 = BlockType("Q4_1", 3, 32, 20)
Q5_0 = BlockType("Q5_0", 6, 32, 22)
Q5_1 = BlockType("Q5_1", 7, 32, 24)
Q8_0 = BlockType("Q8_0", 8, 32, 34)
Q4_K = BlockType("Q4_K", 12, 256, 144)
Q5_K = BlockType("Q5_K", 13, 256, 176)
Q6_K = BlockType("Q6_K", 14, 256, 210)
IQ4_NL = BlockType("IQ4_NL", 20, 32, 18)

IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of the codes of IQ4_NL."""

BLOCK_TYPES = {
    kind.code: kind
    for kind in (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL)
}
"""The types that can be served, by ggml's number."""

OTHER_TYPES = {
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
"""Names of the types that are refused, by ggml's number."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockMatrix:
    """A matrix ``[rows, columns]`` whose values stay as the blocks that a file stores.

    As the weight of a linear layer it gives ``y = x @ matrix.T``. ``data`` is C-contiguous
    ``[rows, bytes of a row]``, often a view of a mapped file, and must not be written to. Two
    layers that share a weight share the object.
    """

    type: BlockType
    rows: int
    columns: int
    data: Bytes

    def __post_init__(self) -> None:
        assert self.data.shape == (self.rows, self.type.row_nbytes(self.columns)), self.data.shape
        assert self.data.dtype == np.uint8, self.data.dtype

    def __len__(self) -> int:
        return self.rows

    def __deepcopy__(self, _memo: object) -> BlockMatrix:
        return self  # the data is never written to

    @property
    def shape(self) -> tuple[int, int]:
        """``(rows, columns)``."""
        return (self.rows, self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self.data.nbytes

    def taken(self, order: npt.NDArray[np.intp]) -> BlockMatrix:
        """Return the rows ``order``, copied block for block."""
        return BlockMatrix(self.type, len(order), self.columns, self.data[order])

    def part(self, start: int, end: int) -> BlockMatrix:
        """Return a view of the rows from ``start`` to before ``end``."""
        rows: Any = self.data[start:end]
        return BlockMatrix(self.type, len(rows), self.columns, rows)
