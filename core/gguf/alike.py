"""alike: matrices of different types in one type that has the values of all of them exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from core.gguf.blocks import (
    BF16,
    F16,
    F32,
    IQ4_NL,
    IQ4_NL_VALUES,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q8_0,
    BlockMatrix,
    BlockType,
    Bytes,
)
from core.gguf.values import values_of


def alike(matrices: Sequence[BlockMatrix]) -> list[BlockMatrix] | None:
    """The matrices in their common type, or in one that is wider; None if there is none.

    Q4_K becomes Q5_K, for one, but no type has the values of both Q4_K and Q6_K.
    """
    kinds = {matrix.type for matrix in matrices}
    if len(kinds) == 1:
        return list(matrices)
    if len({_WIDER.get(kind, kind) for kind in kinds}) > 1:
        return None
    return [_widened(m) if m.type in _WIDER else m for m in matrices]


def _widened(matrix: BlockMatrix) -> BlockMatrix:
    wider = _WIDER[matrix.type]
    if wider == F32:
        data: Bytes = values_of(matrix).view(-1, matrix.columns).numpy().view(np.uint8)
    else:
        blocks = matrix.data.reshape(-1, matrix.type.nbytes)
        data = _BLOCKS[matrix.type.code](blocks).reshape(matrix.rows, -1)
    return BlockMatrix(wider, *matrix.shape, data)


def _q8_0(blocks: Bytes, codes: Bytes) -> Bytes:
    """Blocks of the scales and of signed codes."""
    return np.concatenate([blocks[:, :2], codes], axis=1)


def _nibbles(packed: Bytes) -> Bytes:
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _from_q4_0(blocks: Bytes) -> Bytes:
    return _q8_0(blocks, _nibbles(blocks[:, 2:]) - np.uint8(8))


def _from_q5_0(blocks: Bytes) -> Bytes:
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    codes: Bytes = _nibbles(blocks[:, 6:]) | high << np.uint8(4)
    return _q8_0(blocks, codes - np.uint8(16))


def _from_iq4_nl(blocks: Bytes) -> Bytes:
    table: Bytes = np.array(IQ4_NL_VALUES, np.int8).view(np.uint8)
    return _q8_0(blocks, table[_nibbles(blocks[:, 2:])])


def _from_q4_1(blocks: Bytes) -> Bytes:
    return np.insert(blocks, [4] * 4, 0, axis=1)  # the fifth bits


def _from_q4_k(blocks: Bytes) -> Bytes:
    return np.insert(blocks, [16] * 32, 0, axis=1)  # the fifth bits


_WIDER: dict[BlockType, BlockType] = {
    F16: F32,
    BF16: F32,
    Q4_0: Q8_0,
    Q5_0: Q8_0,
    IQ4_NL: Q8_0,
    Q4_1: Q5_1,
    Q4_K: Q5_K,
}

_BLOCKS: dict[int, Callable[[Bytes], Bytes]] = {
    Q4_0.code: _from_q4_0,
    Q5_0.code: _from_q5_0,
    IQ4_NL.code: _from_iq4_nl,
    Q4_1.code: _from_q4_1,
    Q4_K.code: _from_q4_k,
}
