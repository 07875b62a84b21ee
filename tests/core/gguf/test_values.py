"""Values of blocks against a reference of single numbers, and the gguf package if it is there."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from core.gguf.blocks import BLOCK_TYPES, BlockMatrix, BlockType
from core.gguf.values import reference_values, values_of
from tests.support.gguf_blocks import random_matrix

QUANTISED = [kind for kind in BLOCK_TYPES.values() if not kind.is_plain]

IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def half(block: bytes, at: int) -> np.float32:
    return np.float32(np.frombuffer(block[at : at + 2], "<f2")[0])


def nibble(packed: bytes, i: int) -> int:
    """Value i of 32: low nibbles first."""
    return packed[i % 16] >> (4 if i >= 16 else 0) & 15


def bit(packed: bytes, i: int) -> int:
    return packed[i // 8] >> i % 8 & 1


def scale_and_minimum(packed: bytes, j: int) -> tuple[int, int]:
    """Six bits each of sub-block j, from twelve bytes."""
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    return (
        packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
        packed[j + 4] >> 4 | packed[j] >> 6 << 4,
    )


def one_value(kind: BlockType, block: bytes, i: int) -> np.float32:
    f = np.float32
    match kind.name:
        case "Q4_0":
            return half(block, 0) * f(nibble(block[2:], i) - 8)
        case "Q4_1":
            return half(block, 0) * f(nibble(block[4:], i)) + half(block, 2)
        case "Q5_0":
            return half(block, 0) * f((nibble(block[6:], i) | bit(block[2:6], i) << 4) - 16)
        case "Q5_1":
            code = nibble(block[8:], i) | bit(block[4:8], i) << 4
            return half(block, 0) * f(code) + half(block, 2)
        case "Q8_0":
            return half(block, 0) * f(struct.unpack_from("b", block, 2 + i)[0])
        case "IQ4_NL":
            return half(block, 0) * f(IQ4_NL[nibble(block[2:], i)])
        case "Q4_K" | "Q5_K":
            scale, minimum = scale_and_minimum(block[4:16], i // 32)
            packed = block[16:] if kind.name == "Q4_K" else block[48:]
            code = packed[i // 64 * 32 + i % 32] >> (4 if i % 64 >= 32 else 0) & 15
            if kind.name == "Q5_K":
                code |= (block[16 + i % 32] >> i // 32 & 1) << 4
            return half(block, 0) * f(scale) * f(code) - half(block, 2) * f(minimum)
        case "Q6_K":
            part, rest = divmod(i, 128)
            run, at = divmod(rest, 32)
            low = block[64 * part + 32 * (run % 2) + at] >> (4 if run >= 2 else 0) & 15
            code = (low | (block[128 + 32 * part + at] >> 2 * run & 3) << 4) - 32
            scale = struct.unpack_from("b", block, 192 + i // 16)[0]
            return half(block, 208) * f(scale) * f(code)
    raise AssertionError(kind.name)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_values_are_those_of_the_format_to_the_bit(kind):
    matrix = random_matrix(kind, 3, 2 * kind.size)
    expected = [
        one_value(kind, bytes(block), i)
        for block in matrix.data.reshape(-1, kind.nbytes)
        for i in range(kind.size)
    ]
    for actual in (reference_values(matrix), values_of(matrix)):
        assert actual.dtype is torch.float32
        assert actual.numpy().tobytes() == np.array(expected, "<f4").tobytes()


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_plain_values_are_what_the_file_holds(name, dtype):
    kind = next(kind for kind in BLOCK_TYPES.values() if kind.name == name)
    wanted = torch.randn(5, 7).to(dtype)
    matrix = BlockMatrix(kind, 5, 7, wanted.view(torch.uint8).numpy())
    assert torch.equal(values_of(matrix), wanted.float())


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_values_are_those_of_the_gguf_package(kind):
    quants = pytest.importorskip("gguf.quants")
    matrix = random_matrix(kind, 20, 3 * kind.size)
    expected = quants.dequantize(matrix.data, quants.GGMLQuantizationType[kind.name])
    assert reference_values(matrix).numpy().tobytes() == expected.tobytes()


def test_a_large_matrix_is_computed_in_pieces():
    kind = BLOCK_TYPES[8]
    matrix = random_matrix(kind, 70, 1 << 15)
    whole = values_of(matrix)
    assert torch.equal(whole[40:69], values_of(matrix.part(40, 69)))
    assert torch.equal(values_of(matrix, torch.bfloat16), whole.bfloat16())


def test_rows_are_permuted_block_for_block():
    matrix = random_matrix(BLOCK_TYPES[12], 6, 256)
    order = np.array([5, 0, 3, 1, 2, 4])
    assert torch.equal(values_of(matrix.taken(order)), values_of(matrix)[torch.tensor(order)])
