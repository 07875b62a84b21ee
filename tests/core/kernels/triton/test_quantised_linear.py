"""Products with int8 and float8 matrices equal float64 products within rounding."""

import pytest
import torch

pytest.importorskip("triton")

from core.fusion.quantised import FORMATS, QuantisedWeight, quantise
from core.kernels.triton.quantised_linear import MAX_ROWS, choose_tiles, num_tiles, quantised_linear
from core.kernels.triton.types import IS_INTERPRETED

DEVICES = [
    pytest.param(
        "cpu",
        marks=pytest.mark.skipif(not IS_INTERPRETED, reason="Triton's interpreter is not on"),
    ),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
TOLERANCES = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SHAPES = [(64, 128), (200, 513), (33, 7), (1, 300), (130, 1100)]
NUM_ROWS = [1, 3, 16, 17, 64, 130, MAX_ROWS + 1]
LARGE = [(6144, 4096), (4096, 12288), (1024, 1024), (24576, 4096), (3000, 4100)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(
    num_rows: int, shape: tuple[int, int], fmt: str, dtype: torch.dtype, device: torch.device
) -> float:
    """Largest error relative to the largest output."""
    weight, scale = quantise(randn(*shape).to(device), FORMATS[fmt])
    bias = randn(shape[0], seed=1).to(device, dtype) if num_rows % 2 else None
    x = randn(num_rows, shape[1] + 8, seed=2).to(device, dtype)[:, : shape[1]]
    arrived = torch.zeros(num_tiles(shape[0]), dtype=torch.int32, device=device)
    expected = x.double() @ (weight.double() * scale.double()[:, None]).T
    if bias is not None:
        expected += bias.double()
    actual = quantised_linear(x, weight, scale, bias, arrived)
    assert actual.dtype == dtype
    assert not arrived.any()
    again = quantised_linear(x, weight, scale, bias, arrived)
    assert torch.equal(actual, again)
    return float((actual.double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
@torch.inference_mode()
def test_products_of_any_shape(num_rows: int, fmt: str, device: torch.device) -> None:
    for shape in SHAPES:
        assert error(num_rows, shape, fmt, torch.float32, device) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("fmt", FORMATS)
@torch.inference_mode()
def test_products_in_float16(fmt: str, device: torch.device) -> None:
    for num_rows in (1, 40):
        assert error(num_rows, (70, 300), fmt, torch.float16, device) < TOLERANCES[torch.float16]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", LARGE, ids=str)
@torch.inference_mode()
def test_products_of_large_matrices(shape: tuple[int, int], dtype: torch.dtype, fmt: str) -> None:
    for num_rows in (1, 8, 17, 32, 64, 128, 200, 600):
        assert error(num_rows, shape, fmt, dtype, torch.device("cuda")) < TOLERANCES[dtype]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fmt", FORMATS)
@torch.inference_mode()
def test_a_product_in_a_cuda_graph(fmt: str) -> None:
    weight = QuantisedWeight([(randn(4096, 4096).cuda().bfloat16(), None)], FORMATS[fmt])
    x = randn(8, 4096, seed=1).cuda().bfloat16()
    for _ in range(3):
        expected = weight.multiply(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = weight.multiply(x)
    for seed in range(5):
        x.copy_(randn(8, 4096, seed=seed))
        graph.replay()
        found = actual.clone()
        expected = weight.multiply(x)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("fmt", FORMATS)
@torch.inference_mode()
def test_a_row_is_bitwise_the_same_alone_and_in_a_batch(fmt: str, device: torch.device) -> None:
    weight = QuantisedWeight([(randn(96, 640).to(device), None)], FORMATS[fmt])
    x = randn(20, 640, seed=1).to(device)
    together = weight.multiply(x)
    assert torch.equal(torch.cat([weight.multiply(row[None]) for row in x[:5]]), together[:5])


@pytest.mark.parametrize("size", [64, 1024, 1100, 4096, 12288])
@pytest.mark.parametrize("num_outputs", [64, 1024, 4096, 6144, 24576, 151936])
def test_splits_cover_the_inner_dimension_and_do_not_depend_on_the_rows(
    num_outputs: int, size: int
) -> None:
    chosen = [choose_tiles(n, num_outputs, size, 2) for n in range(1, MAX_ROWS + 1)]
    first = chosen[0]
    num_blocks = -(-size // first.block_k)
    assert (first.num_splits - 1) * first.blocks_per_split < num_blocks
    assert num_blocks <= first.num_splits * first.blocks_per_split
    for num_rows, tiles in enumerate(chosen, 1):
        assert (tiles.block_k, tiles.blocks_per_split, tiles.num_splits) == (
            first.block_k,
            first.blocks_per_split,
            first.num_splits,
        )
        used = -(-num_rows // tiles.block_m) * -(-num_outputs // tiles.block_n)
        assert used <= num_tiles(num_outputs)
    if num_outputs >= 1024 and size % 1024 == 0:  # every multiprocessor gets work
        assert -(-num_outputs // first.block_n) * first.num_splits >= 128


@pytest.mark.parametrize("fmt", FORMATS)
def test_quantise_keeps_the_largest_value_and_zeros(fmt: str) -> None:
    """Other errors are at most half a quantisation step."""
    weight = randn(6, 50)
    weight[2] = 0
    weight[3] *= 1e-6
    weight[4, 7] = 1000
    stored, scale = quantise(weight, FORMATS[fmt])
    found = stored.float() * scale[:, None]
    largest = weight.abs().amax(dim=1, keepdim=True)
    rows = torch.arange(len(weight))
    torch.testing.assert_close(
        found[rows, weight.abs().argmax(1)], weight[rows, weight.abs().argmax(1)]
    )
    step = largest / 254 if fmt == "int8" else weight.abs() / 16 + largest / 448 * 2**-10
    assert ((found - weight).abs() <= step * 1.001).all()
    assert not found[2].any()


@torch.inference_mode()
def test_concatenated_matrices(device: torch.device) -> None:
    first, second = (randn(n, 24, seed=n).to(device) for n in (3, 5))
    bias = randn(5).to(device)
    x = randn(2, 3, 24, seed=1).to(device)
    y = QuantisedWeight([(first, None), (second.t().contiguous().t(), bias)], torch.int8).multiply(
        x
    )
    assert y.shape == (2, 3, 8)
    torch.testing.assert_close(y[..., :3], x @ first.T, rtol=0.05, atol=0.2)
    torch.testing.assert_close(y[..., 3:], x @ second.T + bias, rtol=0.05, atol=0.2)
