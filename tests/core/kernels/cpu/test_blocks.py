"""Products with blocks against the values of the blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, linear, silu

from benchmarks.cpu_products import multiply, multiply_groups, rows
from core.gguf.blocks import BLOCK_TYPES, BlockMatrix, BlockType
from core.gguf.values import values_of
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import (
    BlockFormat,
    pack_block_groups,
    pack_blocks,
    quantise,
    write_values,
)
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Epilogue, PackedWeight
from core.kernels.cpu.structures import MAX_PARTS, Matrix
from tests.support.builds import BUILDS, build
from tests.support.each import each
from tests.support.gguf_blocks import random_matrix

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

CPU = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").is_file() else ""

TYPES = [kind for kind in BLOCK_TYPES.values() if not kind.is_plain]


@pytest.fixture(params=BUILDS)
def library(request: pytest.FixtureRequest) -> Kernels:
    return build(request.param)


def format_of(kind: BlockType) -> BlockFormat:
    fmt = BlockFormat.of(kind.code)
    assert fmt is not None
    return fmt


def packed(library: Kernels, matrix: BlockMatrix, bias: torch.Tensor | None = None) -> PackedWeight:
    return pack_blocks(library, format_of(matrix.type), [matrix.data], matrix.columns, [bias])


def rounded(x: torch.Tensor, kind: BlockType) -> torch.Tensor:
    """``x`` as the kernel multiplies it: bytes with a scale for each run of a block's size.

    These are no rows whose runs have shares of their scale, or outliers.
    """
    runs = x.double().split(kind.size, dim=-1)
    scales = [run.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127 for run in runs]
    return torch.cat(
        [(run / scale).round() * scale for run, scale in zip(runs, scales, strict=True)], -1
    )


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 5e-4) -> None:
    """Where a rounded activation differs in its last bit, the products differ that much."""
    assert actual.shape == expected.shape
    assert actual.dtype == torch.float32
    error = float((actual - expected).abs().max() / expected.abs().max())
    assert error <= tolerance


@each("kind", TYPES)
def test_values_stay_as_they_are(library: Kernels, kind: BlockType) -> None:
    matrix = random_matrix(kind, 75, 2 * 256 if kind.size == 256 else 640)
    expected = values_of(matrix)
    weight = packed(library, matrix)
    ids = torch.tensor([[0, 74], [31, 33]])
    assert torch.equal(rows(weight, torch.arange(75)), expected)
    assert torch.equal(rows(weight, ids), expected[ids])
    found = torch.empty(matrix.shape)
    write_values(library, format_of(kind), matrix.data, matrix.columns, found)
    assert torch.equal(found, expected)
    assert torch.equal(torch.signbit(found), torch.signbit(expected))


@each("kind", TYPES)
def test_special_scales_stay_as_they_are(library: Kernels, kind: BlockType) -> None:
    """Subnormal, largest and infinite scales, and zeros of both signs."""
    halves = np.array([1, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0, 0x8000], "<u2")
    matrix = random_matrix(kind, len(halves), 256)
    at = 208 if kind.name == "Q6_K" else 0
    blocks = matrix.data.reshape(len(halves), -1, kind.nbytes)
    blocks[:, :, at : at + 2] = halves.view(np.uint8).reshape(-1, 1, 2)
    expected = values_of(matrix)
    found = rows(packed(library, matrix), torch.arange(len(halves)))
    assert torch.equal(found.nan_to_num(0.5), expected.nan_to_num(0.5))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_products_equal_those_of_the_values(library: Kernels, kind: BlockType) -> None:
    generator = torch.Generator().manual_seed(0)
    columns = [256, 768] if kind.size == 256 else [32, 352, 640]
    for num_rows, num_columns in zip((70, 33, 40), columns, strict=False):
        matrix = random_matrix(kind, num_rows, num_columns)
        bias = torch.randn(num_rows, generator=generator)
        weight, expected = packed(library, matrix, bias), values_of(matrix).double()
        for count in (1, 2, 3, 4, 5, 9, 70):
            x = torch.rand(count, num_columns, generator=generator) * 2 - 1
            sums = linear(rounded(x, kind), expected, bias.double()).float()
            close(multiply(weight, x), sums)
            close(multiply(weight, x, Epilogue.SILU), silu(sums))


@each("kind", TYPES)
def test_a_row_does_not_depend_on_its_batch(library: Kernels, kind: BlockType) -> None:
    matrix = random_matrix(kind, 100, 1024)
    weight, x = packed(library, matrix), torch.randn(300, 1024)
    x[::3, 5:512:256] *= 100  # some runs of some rows have a value that is far from the others
    alone = torch.cat([multiply(weight, row) for row in x.split(1)])
    for count in (*range(2, 20), 33, 64, 67, 140, 300):
        assert torch.equal(multiply(weight, x[:count]), alone[:count]), count


@pytest.mark.skipif(" amx_int8" in CPU, reason="tiles of AMX have one scale for 256 columns")
@each("kind", TYPES)
def test_a_large_value_takes_no_precision_from_other_chunks(
    library: Kernels, kind: BlockType
) -> None:
    matrix = random_matrix(kind, 40, 512)
    weight, values = packed(library, matrix), values_of(matrix).double()
    x = torch.randn(9, 512)
    large = torch.zeros(9, 512)
    large[:, 5::256] = 16.0
    x[:, 5::256] = 0
    x[:, :32] = x[:, 256:288] = 0  # the chunks with the large values have nothing else
    found = (multiply(weight, x + large) - linear(large.double(), values)).double()
    error = (found - linear(x.double(), values)).std() / linear(x.double(), values).std()
    assert error < 0.015


@pytest.mark.skipif(" amx_int8" in CPU, reason="tiles of AMX have no outliers")
@each("kind", [kind for kind in TYPES if kind.name in ("Q5_0", "Q5_1", "Q8_0")])
def test_a_large_value_takes_no_precision_from_its_chunk(library: Kernels, kind: BlockType) -> None:
    matrix = random_matrix(kind, 40, 640)
    weight, values = packed(library, matrix), values_of(matrix).double()
    x = torch.randn(9, 640)
    x[:, 5::256] = 200
    expected = linear(x.double(), values)
    large = torch.zeros(9, 640, dtype=torch.double)
    large[:, 5::256] = 200
    error = (multiply(weight, x) - expected).std() / (expected - linear(large, values)).std()
    assert error < 0.015


def with_the_largest_codes(kind: BlockType) -> BlockMatrix:
    matrix = random_matrix(kind, 40, 512)
    codes = matrix.data.reshape(-1, kind.nbytes)
    codes[:, : 192 if kind.name == "Q6_K" else kind.nbytes] = 0
    if kind.name != "Q6_K":
        codes[:, 4:] = 0xFF
        codes[:, :4] = np.array([0x3C00, 0], "<u2").view(np.uint8)
    return matrix


@each("kind", [kind for kind in TYPES if kind.size == 256])
def test_sums_of_groups_with_16_bits_and_more(library: Kernels, kind: BlockType) -> None:
    """The largest codes, and more and more of the largest activations in each group."""
    matrix = with_the_largest_codes(kind)
    weight, expected = packed(library, matrix), values_of(matrix).double()
    x = torch.tensor([[float(k % 32 < n) for k in range(512)] for n in range(1, 33)])
    x = torch.cat([x, -x])
    found = multiply(weight, x)
    close(found, linear(x.double(), expected).float(), 1e-5)
    assert torch.equal(torch.cat([multiply(weight, row) for row in x.split(1)]), found)


@pytest.mark.skipif(" amx_int8" in CPU, reason="tiles of AMX have one scale for 256 columns")
@each("kind", [kind for kind in TYPES if kind.size == 256])
def test_large_sums_of_chunks_below_a_large_value(library: Kernels, kind: BlockType) -> None:
    """Chunks of equal values, whose sums would need more than 16 bits with the least share."""
    matrix = with_the_largest_codes(kind)
    weight, expected = packed(library, matrix), values_of(matrix).double()
    x = torch.ones(20, 512)
    x[:, 32:64], x[:, 5::256] = torch.randn(20, 32), torch.arange(2.0, 22).unsqueeze(1)
    found = multiply(weight, x)
    close(found, linear(x.double(), expected).float(), 0.03)
    # no share helps a chunk of the largest values: the others keep theirs
    x[:], x[:, :32] = 65 / (127 * 4), 1.0  # 65 with two eighths of the scale
    found = multiply(weight, x)
    close(found, linear(x.double(), expected).float(), 1e-3)
    assert torch.equal(torch.cat([multiply(weight, row) for row in x.split(1)]), found)


@each("kind", TYPES)
def test_the_largest_sums_fit(library: Kernels, kind: BlockType) -> None:
    """All codes, group scales and activations at their largest."""
    matrix = random_matrix(kind, 3, 512)
    matrix.data[:] = 0xFF
    matrix.data[1] = 0x7F
    matrix.data[2] = 0x80
    blocks = matrix.data.reshape(-1, kind.nbytes)
    for at in (0, 2) if kind.size == 256 else (0,):
        start = 208 if kind.name == "Q6_K" else at
        blocks[:, start : start + 2] = np.array([0x3C00], "<u2").view(np.uint8)
    if kind.name.endswith("_1"):
        blocks[:, 2:4] = np.array([0x3C00], "<u2").view(np.uint8)
    weight, expected = packed(library, matrix), values_of(matrix).double()
    for x in (torch.ones(7, 512), -torch.ones(7, 512)):
        close(multiply(weight, x), linear(x.double(), expected).float(), 1e-5)


def test_gated_products(library: Kernels) -> None:
    kind = BLOCK_TYPES[12]
    gate, up = random_matrix(kind, 96, 256, 1), random_matrix(kind, 96, 256, 2)
    biases = [torch.randn(96), torch.randn(96)]
    weight = pack_blocks(library, format_of(kind), [gate.data, up.data], 256, biases, is_gated=True)
    for count in (1, 8):
        x = torch.randn(count, 256)
        sharp = rounded(x, kind)
        left, right = (
            linear(sharp, values_of(m).double()).float() + bias
            for m, bias in zip((gate, up), biases, strict=True)
        )
        close(multiply(weight, x, Epilogue.SILU_GATE), silu(left) * right)
        close(multiply(weight, x, Epilogue.GELU_TANH_GATE), gelu(left, approximate="tanh") * right)


@each("kind", [kind for kind in TYPES if kind.name in ("Q4_0", "Q4_K", "Q6_K")])
def test_groups_have_the_bits_of_their_matrices(library: Kernels, kind: BlockType) -> None:
    rows, columns, sizes = 64, 256, [3, 0, 1, 20, 0]
    gate, up, down = (random_matrix(kind, rows * len(sizes), columns, seed) for seed in range(3))
    fmt, ends, x = format_of(kind), torch.tensor(sizes).cumsum(0), torch.randn(26, columns)
    both = pack_block_groups(library, fmt, [gate.data, up.data], columns, len(sizes), is_gated=True)
    one = pack_block_groups(library, fmt, [down.data], columns, len(sizes))
    found = multiply_groups(both, x, ends, Epilogue.SILU_GATE), multiply_groups(one, x, ends)
    for i, size in enumerate(sizes):
        own = slice(int(ends[i]) - size, int(ends[i]))
        parts = [m.part(i * rows, (i + 1) * rows).data for m in (gate, up, down)]
        pair = pack_blocks(library, fmt, parts[:2], columns, [None] * 2, is_gated=True)
        assert torch.equal(found[0][own], multiply(pair, x[own], Epilogue.SILU_GATE))
        alone = pack_blocks(library, fmt, parts[2:], columns, [None])
        assert torch.equal(found[1][own], multiply(alone, x[own]))


def test_the_layer_kernel_gets_no_more_parts_than_it_has_room_for(library: Kernels) -> None:
    part = packed(library, random_matrix(BLOCK_TYPES[8], 32, 32))
    weight = part
    for _ in range(MAX_PARTS - 1):
        weight = replace(part, more=weight)
    Matrix.of(weight)
    with pytest.raises(AssertionError):
        Matrix.of(replace(part, more=weight))
    with pytest.raises(AssertionError):
        Matrix.of(replace(part, more=part), Epilogue.SILU_GATE)


@each("code, num_rows", [(12, 6), (12, 20), (14, 20)])
def test_what_is_not_finite_stays_in_its_row(library: Kernels, code: int, num_rows: int) -> None:
    matrix = random_matrix(BLOCK_TYPES[code], 40, 512)
    weight, x = packed(library, matrix), torch.randn(num_rows, 512)
    expected = multiply(weight, x)
    x[2, 300], x[4, 7] = torch.nan, torch.inf
    found = multiply(weight, x)
    assert found[[2, 4]].isnan().all()
    kept = [row for row in range(num_rows) if row not in (2, 4)]
    assert torch.equal(found[kept], expected[kept])


@each(
    "name, bound",
    [("Q4_K", 0.08), ("Q5_K", 0.038), ("Q6_K", 0.02), ("Q5_0", 0.05), ("Q8_0", 0.006)],
)
def test_quantised_weights_are_near(library: Kernels, name: str, bound: float) -> None:
    kind = next(kind for kind in TYPES if kind.name == name)
    weight = torch.randn(5, 768, generator=torch.Generator().manual_seed(0))
    weight[1] = 0
    weight[2] += 3
    weight[3] *= 1e-3
    weight[4, ::7] *= 30
    data = quantise(library, format_of(kind), weight)
    found = values_of(BlockMatrix(kind, 5, 768, data))
    errors = (found - weight).norm(dim=1) / weight.norm(dim=1).clamp_min(1e-30)
    assert float(errors[1]) == 0
    assert float(errors[[0, 2]].max()) <= bound
    assert bool((errors <= 2 * bound).all())
