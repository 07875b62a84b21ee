"""Every draw as a function of u: an even grid of u must give every token its exact share."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.contract.params import SamplingParams
from core.kernels.cpu import sampling
from core.kernels.cpu.library import kernels
from core.sampling import torch_draw
from core.sampling.draw import RandomRows, RowDraw, load_row_draw
from core.sampling.greedy import FAILED, MASKED
from tests.core.sampling.builders import is_clear_cut, make_logits, make_sequence, survivors
from tests.support.builds import BUILDS, build
from tests.support.each import each

CPU = torch.device("cpu")
GRID = 256
DRAWS = ["torch", *BUILDS]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads slow down operations on tiny tensors."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=DRAWS)
def draw(request: pytest.FixtureRequest) -> RowDraw:
    if request.param == "torch":
        return torch_draw.draw_rows
    if kernels() is None:
        pytest.skip("no C++ compiler")
    return functools.partial(sampling.draw_rows, build(request.param))


def bits_of(u: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(((u * 2.0**52).astype(np.uint64) << np.uint64(12)).view(np.int64))


def even_grid(num: int) -> torch.Tensor:
    return bits_of((np.arange(num) + 0.5) / num)


def drawn(draw: RowDraw, logits: torch.Tensor, bits: torch.Tensor, **params: float) -> torch.Tensor:
    """Draws of one row."""
    top_k = min(int(params.get("top_k", 0)), len(logits)) or len(logits)
    given = [params.get("temperature", 1.0), params.get("min_p", 0.0), top_k]
    filters = torch.tensor([*given, params.get("top_p", 1.0)], dtype=torch.float64)
    rows = logits.expand(len(bits), -1).contiguous()
    return draw(rows, filters[:, None].expand(-1, len(bits)).contiguous(), bits)


@each("vocab_size", [1, 2, 127, 128, 129, 511, 512, 513, 1024, 5000])
@each("temperature", [0.7, 1.0])
def test_shares_without_filters_match_the_softmax(draw, vocab_size, temperature):
    logits = make_logits(1, vocab_size, scale=2.0)[0]
    tokens = drawn(draw, logits, even_grid(512), temperature=temperature)
    shares = np.bincount(tokens.numpy(), minlength=vocab_size) / 512
    expected = (logits.double() / temperature).softmax(0).numpy()
    # An interval of length p holds p * 512 points of the grid, give or take one.
    assert np.abs(shares - expected).max() <= 1.01 / 512
    assert (tokens.diff() >= 0).all()


def test_the_last_of_many_equal_tokens_keeps_its_share(draw):
    """A float32 sum of equal masses rounds the same way each time, which the last would gain."""
    logits = torch.full((150_011,), float(np.log(0.7)))
    logits[0] = 0.0
    logits[-10:] = float(np.log(0.5))
    token = drawn(draw, logits, bits_of(np.array([1 - 1e-4])), min_p=0.1)
    assert 0 < token.item() < 150_001


@each("params", [{}, {"top_p": 0.999}, {"min_p": 1e-6}, {"top_k": 2999}])
def test_a_masked_token_is_never_drawn(draw, params):
    logits = make_logits(1, 3000)[0]
    masked = torch.rand(3000, generator=torch.Generator().manual_seed(1)) < 0.9
    logits[masked] = -torch.inf
    edges = np.array([0.0, 2.0**-52, 0.5, 1 - 2.0**-52])
    bits = torch.cat([even_grid(500), bits_of(edges)])
    assert not masked[drawn(draw, logits, bits, **params)].any()
    logits[:] = -torch.inf
    logits[[1000, 2999]] = 3.0
    assert drawn(draw, logits, even_grid(2), **params).tolist() == [1000, 2999]


logit_lists = st.lists(
    st.one_of(st.integers(-8, 8).map(float), st.floats(-20, 20, width=32), st.just(-torch.inf)),
    min_size=1,
    max_size=40,
).filter(lambda values: max(values) > -torch.inf)


@settings(max_examples=60, deadline=None)
@given(
    values=logit_lists,
    repeats=st.sampled_from([1, 20]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.integers(0, 45),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
)
def test_filtered_shares_match_the_reference(
    draw, values, repeats, temperature, top_k, top_p, min_p
):
    params = SamplingParams(
        max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    logits = torch.tensor(values * repeats, dtype=torch.float32)
    assume(is_clear_cut(logits, params))
    expected, probabilities = survivors(logits, params)
    tokens = drawn(
        *(draw, logits, even_grid(GRID)),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    counts = np.bincount(tokens.numpy(), minlength=len(logits))
    assert counts[expected].sum() == GRID  # nothing else was drawn
    assert np.abs(counts[expected] / GRID - probabilities).max() <= 1.01 / GRID


def test_tokens_are_drawn_in_the_order_of_rank(draw):
    logits = make_logits(1, 700, scale=1.0)[0]
    order = logits.sort(descending=True, stable=True).indices.tolist()
    for params in ({"top_p": 0.97}, {"top_k": 650}, {"min_p": 0.001}):
        ranks = [order.index(token) for token in drawn(draw, logits, even_grid(300), **params)]
        assert ranks == sorted(ranks)
        assert len(set(ranks)) > 150


def test_equal_logits_rank_in_the_order_of_ids(draw):
    logits = torch.zeros(8)
    logits[[2, 5]] = 1.0
    logits[3] = -0.0
    tokens = drawn(draw, logits, even_grid(5), top_k=5, temperature=1e6)
    assert tokens.tolist() == [2, 5, 0, 1, 3]
    many = drawn(draw, torch.zeros(3000), even_grid(1000), top_k=1000)
    assert many.tolist() == list(range(1000))
    assert set(drawn(draw, torch.zeros(3000), even_grid(50), top_p=0.1).tolist()) < set(range(301))


@each("params", [{"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_rows_without_a_distribution_fail(draw, params):
    for bad in (torch.nan, torch.inf):
        logits = make_logits(1, 600)[0]
        logits[599] = bad
        assert drawn(draw, logits, even_grid(1), **params).tolist() == [FAILED]
    masked = torch.full((600,), -torch.inf)
    assert drawn(draw, masked, even_grid(1), **params).tolist() == [MASKED]


def test_a_temperature_of_zero_takes_the_first_best_token(draw):
    logits = make_logits(3, 500).round()
    logits[2, [130, 499]] = 50.0
    filters = torch.tensor([[0.0], [0.0], [500.0], [1.0]], dtype=torch.float64).expand(4, 3)
    tokens = draw(logits, filters.contiguous(), even_grid(3))
    assert tokens.tolist() == [int((row == row.max()).nonzero()[0]) for row in logits]


@each("params", [{}, {"top_p": 0.99}, {"top_k": 200}, {"min_p": 0.3}])
def test_extreme_logits_and_temperatures(draw, params):
    logits = make_logits(1, 300)[0]
    cold = drawn(draw, logits, even_grid(9), temperature=1.1e-5, **params)
    assert set(cold.tolist()) == {int(logits.argmax())}
    hot = drawn(draw, logits, even_grid(300), temperature=1e30, **params)
    assert len(set(hot.tolist())) >= 190
    logits[7], logits[8] = 3e38, -3e38
    assert set(drawn(draw, logits, even_grid(9), **params).tolist()) == {7}


WAYS = [
    {},
    {"temperature": 0.7},
    {"temperature": 2.0, "top_p": 0.95},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 5_000},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 1.7, "min_p": 1e-4, "top_p": 0.8},
]


@pytest.mark.skipif(kernels() is None, reason="no C++ compiler")
@each("way", WAYS)
@each("scale", [1.0, 3.0])
def test_the_kernel_draws_the_reference_s_tokens(way, scale):
    """They may differ where u is as near to a boundary of two tokens as float32 rounds."""
    num_rows, vocab_size = 16, 20_000
    logits = make_logits(num_rows, vocab_size, scale=scale)
    params = SamplingParams(max_tokens=1, **{"temperature": 1.0, **way})
    sequences = [make_sequence(seed=seed, **way) for seed in range(num_rows)]
    library = load_row_draw(vocab_size, torch.float32, CPU)
    kernel, reference = (
        RandomRows(sequences, kind, vocab_size=vocab_size, device=CPU).draw(logits).tolist()
        for kind in (library, torch_draw.draw_rows)
    )
    differing = [row for row in range(num_rows) if kernel[row] != reference[row]]
    assert len(differing) <= 2
    for row in differing:
        probabilities = (logits[row].double() / params.temperature).softmax(0)
        ranks = torch.arange(vocab_size)
        if {"top_k", "top_p", "min_p"} & set(way):
            order = logits[row].sort(descending=True, stable=True).indices
            probabilities, ranks = probabilities[order], order.argsort()
        low, high = sorted((int(ranks[kernel[row]]), int(ranks[reference[row]])))
        assert probabilities[low + 1 : high].sum() < 1e-6  # neighbours


def test_the_kernel_is_used_where_there_is_one():
    draw = load_row_draw(50, torch.float32, CPU)
    assert (draw is torch_draw.draw_rows) == (kernels() is None)
