"""The compiled kernels against torch. They run wherever there is a C++ compiler."""

import mmap
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import gelu, linear, relu, silu

from benchmarks.cpu_products import (
    activation_levels,
    multiply,
    rotated,
    rounds_activations,
    rows,
)
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import (
    Epilogue,
    Format,
    Rows,
    interleave,
    interleave_biases,
    pack,
    pack_into,
)
from core.kernels.cpu.sampling import best_tokens, logprob_lines
from core.sampling.greedy import FAILED, MASKED
from tests.support.builds import BUILDS, build
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")


@pytest.fixture(params=BUILDS)
def library(request: pytest.FixtureRequest) -> Kernels:
    return build(request.param)


ACTIVATIONS = {
    Epilogue.NONE: lambda y: y,
    Epilogue.SILU: silu,
    Epilogue.GELU_TANH: lambda y: gelu(y, approximate="tanh"),
    Epilogue.GELU: gelu,
    Epilogue.RELU: relu,
    Epilogue.RELU2: lambda y: relu(y).square(),
}
GATES = {Epilogue[f"{one.name}_GATE"]: act for one, act in ACTIVATIONS.items() if one}


ROUNDING = {0: 2e-5, 127: 5e-3}
"""Largest relative error of a product if the last bit of a rounded activation differs, by its
largest integer."""


def tolerance_of(library: Kernels, fmt: Format) -> float:
    return ROUNDING.get(activation_levels(library, fmt)[0], 1e-4)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-5) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == torch.float32
    most = float(expected.abs().max()) or 1.0  # RELU of few values may give zeros alone
    assert float((actual - expected).abs().max()) <= tolerance * most


def rotation_of(num_columns: int, library: Kernels, fmt: Format) -> torch.Tensor:
    """What rows are multiplied by before they are rounded; its inverse is its transpose."""
    return rotated(library, fmt, torch.eye(num_columns))


def rounded(x: torch.Tensor, library: Kernels, fmt: Format) -> torch.Tensor:
    """``x`` as the kernel multiplies it with weights of this format."""
    levels, columns = activation_levels(library, fmt)
    if levels:
        size = x.shape[-1]
        runs = rotated(library, fmt, x.view(-1, size)).split(columns, dim=-1)
        highest = [run.abs().amax(-1, keepdim=True) for run in runs]
        sharp = [
            (run.double() * (levels / most).double()).round().float() * (most / levels)
            for run, most in zip(runs, highest, strict=True)
        ]
        return (torch.cat(sharp, -1) @ rotation_of(size, library, fmt).T).view(x.shape)
    return x.bfloat16().float() if rounds_activations(library, fmt) else x


def stored(weight: torch.Tensor, library: Kernels, fmt: Format) -> torch.Tensor:
    """The matrix as the format stores it."""
    match fmt:
        case Format.FLOAT32:
            return weight
        case Format.BFLOAT16:
            return weight.bfloat16().float()
        case Format.FLOAT16:
            return weight.half().float()
        case Format.INT8:
            turned = rotated(library, fmt, weight)
            scale = turned.abs().amax(1, keepdim=True) / 127
            codes = (turned / scale).round()
            return codes * scale @ rotation_of(weight.shape[1], library, fmt).T


@pytest.mark.parametrize("fmt", Format)
@pytest.mark.parametrize("epilogue", ACTIVATIONS, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 5), (16, 32), (50, 33), (20, 257), (300, 600)], ids=str
)
def test_products_equal_torch(
    library: Kernels, fmt: Format, epilogue: Epilogue, shape: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    weight = torch.randn(*shape, generator=generator)
    bias = torch.randn(shape[0], generator=generator)
    packed = pack(library, [weight], [bias], fmt)
    sharp = stored(weight, library, fmt)
    for num_rows in (*range(1, 15), 31, 64):  # every split of rows into tiles
        x = torch.randn(num_rows, shape[1], generator=generator)
        expected = ACTIVATIONS[epilogue](linear(rounded(x, library, fmt), sharp, bias))
        close(multiply(packed, x, epilogue), expected, tolerance_of(library, fmt))


@each("fmt", Format)
def test_stacked_matrices_are_one(library: Kernels, fmt: Format) -> None:
    weights = [torch.randn(rows, 40) for rows in (70, 3, 33)]
    bias = torch.randn(3)
    packed = pack(library, weights, [None, bias, None], fmt)
    whole = torch.cat([stored(weight, library, fmt) for weight in weights])
    x = torch.randn(1, 2, 40)
    expected = linear(rounded(x, library, fmt), whole)
    expected[..., 70:73] += bias
    close(multiply(packed, x), expected, tolerance_of(library, fmt))
    ids = torch.tensor([[0, 69, 70], [72, 73, 105]])
    torch.testing.assert_close(rows(packed, ids), whole[ids], rtol=1e-6, atol=1e-6)


@each("fmt", Format)
def test_weights_are_packed_from_any_memory_over_any_memory(library: Kernels, fmt: Format) -> None:
    """Whole and partial tiles, in both types that the kernel reads, by row and by column."""
    for shape in ((64, 48), (70, 37)):
        weight = torch.randn(*shape).bfloat16()
        size = len(pack(library, [weight], [None], fmt).data)
        packed = []
        for memory in (weight, weight.float(), weight.t().contiguous().t()):
            data, scale = torch.full((size,), 85, dtype=torch.uint8), torch.zeros(128)
            rows = Rows.of([memory[:5], memory[5:]])
            pack_into(library, rows, fmt, data, scale if fmt is Format.INT8 else None)
            packed.append((data, scale))
        assert all(torch.equal(a, b) for one in packed for a, b in zip(one, packed[0], strict=True))
        zeros = torch.zeros(size, dtype=torch.uint8)
        pack_into(library, Rows.of([weight]), fmt, zeros, torch.zeros(128))
        assert torch.equal(zeros, packed[0][0])
        mixed = pack(library, [weight[:5], weight[5:].float()], [None, None], fmt)
        assert torch.equal(mixed.data, zeros)


@each("fmt", [Format.BFLOAT16, Format.INT8])
def test_large_results_have_the_bits_of_small_ones(fmt: Format) -> None:
    """With AMX, results of 4 MiB are written past the caches, by both threads."""
    library = kernels()
    assert library is not None
    packed = pack(library, [torch.randn(4096, 64)], [None], fmt)
    x = torch.randn(300, 64)
    alone = torch.cat([multiply(packed, part) for part in x.split(7)])
    assert all(torch.equal(multiply(packed, x), alone) for _ in range(3))


def test_a_large_matrix(library: Kernels) -> None:
    weight = torch.randn(70_000, 256)
    packed = pack(library, [weight.bfloat16()], [None], Format.BFLOAT16)
    x = torch.randn(3, 256).bfloat16().float()
    close(multiply(packed, x), linear(x, stored(weight, library, Format.BFLOAT16)))


@pytest.mark.parametrize("epilogue", GATES, ids=str)
@pytest.mark.parametrize("fmt", Format)
def test_gated_epilogues_equal_torch(library: Kernels, fmt: Format, epilogue: Epilogue) -> None:
    gate, up = torch.randn(96, 48), torch.randn(96, 48)
    for biases in ((None, None), (torch.randn(96), torch.randn(96)), (None, torch.randn(96))):
        bias = interleave_biases(library, *biases)
        packed = pack(library, interleave(library, gate, up), [bias], fmt)
        for num_rows in (1, 5, 20):
            x = torch.randn(num_rows, 48)
            sharp = rounded(x, library, fmt)
            halves = zip((gate, up), biases, strict=True)
            left, right = (linear(sharp, stored(half, library, fmt), b) for half, b in halves)
            expected = GATES[epilogue](left) * right
            close(multiply(packed, x, epilogue), expected, tolerance_of(library, fmt))


@each("fmt", Format)
def test_a_row_does_not_depend_on_its_batch(library: Kernels, fmt: Format) -> None:
    packed = pack(library, [torch.randn(300, 203)], [torch.randn(300)], fmt)
    x = torch.randn(40, 203)
    alone = torch.cat([multiply(packed, row, Epilogue.SILU) for row in x.split(1)])
    for num_rows in (*range(2, 15), 31, 40):
        close(multiply(packed, x[:num_rows], Epilogue.SILU), alone[:num_rows], 0)


@each("fmt", Format)
def test_rows_of_a_large_product_have_the_bits_of_each_alone(library: Kernels, fmt: Format) -> None:
    """More rows and columns than the caches hold at a time."""
    weight, x = torch.randn(70, 2600), torch.randn(450, 2600)
    packed = pack(library, [weight], [None], fmt)
    y = multiply(packed, x)
    expected = linear(rounded(x, library, fmt), stored(weight, library, fmt))
    close(y, expected, tolerance_of(library, fmt))
    for row in (0, 15, 16, 31, 200, 287, 448, 449):
        close(y[row : row + 1], multiply(packed, x[row : row + 1]), 0)


def test_matrices_of_other_shapes_are_not_interleaved(library: Kernels) -> None:
    assert interleave(library, torch.randn(9, 4), torch.randn(9, 4)) is None
    assert interleave(library, torch.randn(64, 4), torch.randn(32, 4)) is None


def test_out_is_written_in_place(library: Kernels) -> None:
    packed = pack(library, [torch.randn(20, 8)], [None], Format.FLOAT32)
    x, out = torch.randn(4, 8), torch.full((4, 20), torch.nan)
    assert multiply(packed, x, out=out) is out
    close(out, multiply(packed, x), 0)


@each("size", [3000, 5, 16, 96, 640])
def test_int8_sums_do_not_overflow(library: Kernels, size: int) -> None:
    """Values that are all the largest integers, rotated or not, have exact products."""
    back = rotation_of(size, library, Format.INT8).T
    weight = torch.full((3, size), 2.0) @ back
    packed = pack(library, [weight], [None], Format.INT8)
    x = torch.full((2, size), -7.0)
    x[1] = 0
    expected = torch.zeros(2, 3)
    expected[0] = -14 * size
    close(multiply(packed, x @ back), expected, 1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_packing_keeps_no_memory(library: Kernels) -> None:
    """Rows that are rotated before they are rounded are as large as the weights in float32."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    weight = torch.ones(library.panel, 1 << 18)
    before = resident()
    packed = pack(library, [weight], [None], Format.INT8)
    assert resident() - before < packed.nbytes + weight.nbytes // 4


def test_rotations_are_orthogonal(library: Kernels) -> None:
    """Whole blocks, smaller ones behind them, and columns that stay."""
    for size in (1, 15, 16, 47, 256, 520, 752):
        matrix = rotation_of(size, library, Format.INT8)
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(size), rtol=0, atol=1e-5)


def test_a_large_value_does_not_spoil_the_other_columns(library: Kernels) -> None:
    """The first token of some models has columns a thousand times as large as the others."""
    weight = torch.randn(64, 256)
    packed = pack(library, [weight], [None], Format.INT8)
    x = torch.randn(4, 256)
    x[:, 7] = 1000
    error = multiply(packed, x) - linear(x, rows(packed, torch.arange(64)))
    assert error.std() < 5


def test_an_empty_input_gives_an_empty_result(library: Kernels) -> None:
    packed = pack(library, [torch.randn(20, 8)], [None], Format.FLOAT32)
    assert multiply(packed, torch.empty(0, 8)).shape == (0, 20)


@each("fmt", Format)
@each("column", [2, 30, 32])
@each("value", [torch.nan, torch.inf])
def test_nan_and_infinity_stay_in_their_row(
    library: Kernels, fmt: Format, column: int, value: float
) -> None:
    packed = pack(library, [torch.randn(20, 33)], [None], fmt)
    x = torch.randn(3, 33)
    x[1, column] = value
    y = multiply(packed, x)
    assert not y[1].isfinite().any()
    assert y[[0, 2]].isfinite().all()


def test_the_best_token_is_the_first_maximum(library: Kernels) -> None:
    x = torch.randn(7, 5000).round(decimals=1)
    x[1] = -torch.inf
    x[2, [1023, 4999]] = 9.0
    x[3, 4999] = 9.0
    x[4, [4998, 4999]] = torch.nan
    x[5, 1024] = torch.inf
    x[6, :4999] = -torch.inf
    some = x[:, 7:]  # rows with a stride larger than their length
    first = [int((row == row.max()).nonzero()[0]) for row in some[:4]]
    assert best_tokens(library, some).tolist() == [
        *(first[0], MASKED, first[2], first[3], FAILED, FAILED, 4992)
    ]
    assert best_tokens(library, x[:1, ::2]).tolist() == [int(x[0, ::2].argmax())]
    assert best_tokens(library, x[:1, :3]).tolist() == x[:1, :3].argmax(1).tolist()
    assert best_tokens(library, torch.zeros(2, 40)).tolist() == [0, 0]


def test_log_probabilities_equal_torch(library: Kernels) -> None:
    for vocab_size, num_top in ((1, 0), (3, 20), (129, 20), (5000, 20), (5000, 5)):
        x = torch.randn(3, vocab_size) * 4
        x[1] = x[1].round()
        x[2, 1::2] = -torch.inf
        ids = torch.tensor([0, vocab_size // 2, vocab_size - 1])
        lines = logprob_lines(library, x, ids, num_top)
        count = min(num_top, vocab_size)
        assert lines.shape == (3, 1 + 2 * count)
        expected = x.double().log_softmax(1)
        order = x.sort(dim=1, descending=True, stable=True).indices[:, :count]
        assert lines[:, 1 + count :].tolist() == order.tolist()
        best = expected.gather(1, order)
        torch.testing.assert_close(lines[:, 1 : 1 + count], best, rtol=0, atol=1e-5)
        own = expected.gather(1, ids[:, None])
        torch.testing.assert_close(lines[:, :1], own, rtol=0, atol=1e-5)


def test_log_probabilities_of_rows_without_a_distribution_are_nan(library: Kernels) -> None:
    x = torch.randn(4, 300)
    x[0, 299], x[1, 5], x[2] = torch.nan, torch.inf, -torch.inf
    lines = logprob_lines(library, x, torch.zeros(4, dtype=torch.int64), 2)
    assert lines.isnan().all(1).tolist() == [True, True, True, False]
