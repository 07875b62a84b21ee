"""The values of blocks in float32, as ggml's reference dequantisation computes them, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch

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
    Q6_K,
    Q8_0,
    BlockMatrix,
)
from core.kernels.cpu.blocks import BlockFormat, write_values
from core.kernels.cpu.library import kernels

Blocks: TypeAlias = torch.Tensor
"""uint8 ``[num_blocks, bytes of a block]``."""

_PIECE = 1 << 20
"""Values that are computed at a time: what is in between stays in the cache."""

PLAIN_TYPES = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}
"""torch's types of the values of plain blocks."""


def values_of(matrix: BlockMatrix, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the matrix ``[rows, columns]``; ``dtype`` rounds the float32 values."""
    result = torch.empty(matrix.shape, dtype=dtype)
    if dtype is torch.float32:
        put_values(matrix, result)
        return result
    step = max(1, _PIECE // matrix.columns)
    piece = torch.empty(min(step, matrix.rows), matrix.columns)
    for start in range(0, matrix.rows, step):
        part = matrix.part(start, start + step)
        put_values(part, piece[: part.rows])
        result[start : start + step] = piece[: part.rows]
    return result


def put_values(matrix: BlockMatrix, out: torch.Tensor) -> None:
    """Write the values to ``out``, contiguous float32 ``[rows, columns]``.

    The compiled kernels compute them if there are any.
    """
    compiled, fmt = kernels(), BlockFormat.of(matrix.type.code)
    if compiled is not None and fmt is not None:
        write_values(compiled, fmt, matrix.data, matrix.columns, out)
        return
    step = max(1, _PIECE // matrix.columns)
    for start in range(0, matrix.rows, step):
        out[start : start + step] = reference_values(matrix.part(start, start + step))


def plain_values(matrix: BlockMatrix) -> torch.Tensor:
    """Return a view of a plain matrix in its own type."""
    return torch.from_numpy(matrix.data).view(PLAIN_TYPES[matrix.type])


def narrowest(matrix: BlockMatrix) -> BlockMatrix:
    """Return a matrix of F16 in BF16 if that has the same values, else the matrix.

    They are the same if the file was made from bfloat16, which CPUs multiply faster.
    """
    if matrix.type != F16:
        return matrix
    wide = plain_values(matrix)
    narrow = torch.empty(matrix.shape, dtype=torch.bfloat16)
    step = max(1, _PIECE // matrix.columns)
    for start in range(0, matrix.rows, step):
        piece = wide[start : start + step]
        narrow[start : start + step] = piece
        if not torch.equal(narrow[start : start + step].half(), piece):
            return matrix
    return BlockMatrix(BF16, *matrix.shape, narrow.view(torch.uint8).numpy())


def reference_values(matrix: BlockMatrix) -> torch.Tensor:
    """Return float32 ``[rows, columns]``, computed by torch alone."""
    blocks = torch.from_numpy(np.ascontiguousarray(matrix.data)).view(-1, matrix.type.nbytes)
    return _VALUES[matrix.type.code](blocks).reshape(matrix.shape)


def _f32(blocks: Blocks) -> torch.Tensor:
    return blocks.view(torch.float32)


def _f16(blocks: Blocks) -> torch.Tensor:
    return blocks.view(torch.float16).float()


def _bf16(blocks: Blocks) -> torch.Tensor:
    return blocks.view(torch.bfloat16).float()


def _q4_0(blocks: Blocks) -> torch.Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).to(torch.int8) - 8)


def _q4_1(blocks: Blocks) -> torch.Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Blocks) -> torch.Tensor:
    codes = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4
    return _half(blocks, 0) * (codes.to(torch.int8) - 16)


def _q5_1(blocks: Blocks) -> torch.Tensor:
    codes = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4
    return _half(blocks, 0) * codes + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> torch.Tensor:
    return _half(blocks, 0) * blocks[:, 2:].view(torch.int8)


def _q4_k(blocks: Blocks) -> torch.Tensor:
    scales, minimums = _scales_and_minimums(blocks)
    return scales * _pairs_of_nibbles(blocks[:, 16:]) - minimums


def _q5_k(blocks: Blocks) -> torch.Tensor:
    scales, minimums = _scales_and_minimums(blocks)
    high = torch.stack([blocks[:, 16:48] >> i & 1 for i in range(8)], dim=1)
    return scales * (_pairs_of_nibbles(blocks[:, 48:]) | high << 4) - minimums


def _q6_k(blocks: Blocks) -> torch.Tensor:
    low, high = blocks[:, :128].view(-1, 2, 2, 32), blocks[:, 128:192].view(-1, 2, 32)
    low = torch.stack([low & 15, low >> 4], dim=2).flatten(2, 3)  # [num_blocks, 2, 4, 32]
    high = torch.stack([high >> i & 3 for i in (0, 2, 4, 6)], dim=2)
    codes = (low | high << 4).to(torch.int8) - 32
    scales = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    return scales[:, :, None] * codes.reshape(-1, 16, 16)


def _iq4_nl(blocks: Blocks) -> torch.Tensor:
    table = torch.tensor(IQ4_NL_VALUES, dtype=torch.float32)
    return _half(blocks, 0) * table[_nibbles(blocks[:, 2:]).int()]


def _half(blocks: Blocks, start: int) -> torch.Tensor:
    """The float16 number at byte ``start``, float32 ``[num_blocks, 1]``."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """``[num_blocks, n]`` bytes to ``[num_blocks, 2 n]``: first all low nibbles, then the high."""
    return torch.cat([packed & 15, packed >> 4], dim=1)


def _pairs_of_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """128 bytes to ``[num_blocks, 8, 32]``: 32 bytes hold two sub-blocks, low and high nibbles."""
    runs = packed.reshape(-1, 4, 32)
    return torch.stack([runs & 15, runs >> 4], dim=2).view(-1, 8, 32)


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """``[num_blocks, 4]`` bytes to 32 bits, the lowest first."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return (packed[:, :, None] >> shifts & 1).view(-1, 32)


def _scales_and_minimums(blocks: Blocks) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and minimums of the 8 sub-blocks of Q4_K and Q5_K, each ``[num_blocks, 8, 1]``.

    Bytes 4 to 15 hold 6 bits of each: four scales and four minimums in the low bits of eight bytes,
    the rest in the nibbles of the last four and in the high bits of the first eight.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], dim=1)
    minimums = torch.cat([second & 63, third >> 4 | second >> 6 << 4], dim=1)
    return (_half(blocks, 0) * scales)[:, :, None], (_half(blocks, 2) * minimums)[:, :, None]


_VALUES: dict[int, Callable[[Blocks], torch.Tensor]] = {
    F32.code: _f32,
    F16.code: _f16,
    BF16.code: _bf16,
    Q4_0.code: _q4_0,
    Q4_1.code: _q4_1,
    Q5_0.code: _q5_0,
    Q5_1.code: _q5_1,
    Q8_0.code: _q8_0,
    Q4_K.code: _q4_k,
    Q5_K.code: _q5_k,
    Q6_K.code: _q6_k,
    IQ4_NL.code: _iq4_nl,
}
