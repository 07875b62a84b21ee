"""Draws as functions of u: an even grid of u must give every token its exact share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.contract.params import SamplingParams
from core.sampling.best import topk
from core.sampling.draw import FAILED, MASKED, UNRESOLVED, draw_filtered, draw_unfiltered
from tests.core.sampling.builders import is_clear_cut, make_logits, survivors
from tests.support.each import each

GRID = 256


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads slow down operations on tiny tensors."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def even_grid(num: int) -> torch.Tensor:
    return (torch.arange(num, dtype=torch.float64) + 0.5) / num


def filtered(logits, params, u, num_candidates, total=None):
    """The draw for one row of logits and many u."""
    vocab_size = len(logits)
    if num_candidates < vocab_size:
        values, ids = topk(logits[None], num_candidates)
    else:
        values, ids = logits[None].sort(dim=1, descending=True, stable=True)
    top_k = min(params.top_k, vocab_size) or vocab_size
    limits = [params.temperature, params.min_p, top_k, params.top_p]
    filters = torch.tensor(limits, dtype=torch.float64)[:, None].expand(4, len(u)).contiguous()
    return draw_filtered(
        values.expand(len(u), -1).contiguous(),
        ids.expand(len(u), -1).contiguous(),
        filters,
        None if total is None else total.expand(len(u)),
        u,
        vocab_size=vocab_size,
        is_bounded=top_k <= min(num_candidates, vocab_size),
    )


@each("vocab_size", [1, 2, 511, 512, 513, 1024, 5000])
def test_unfiltered_shares_match_the_softmax(vocab_size):
    logits = make_logits(1, vocab_size, scale=2.0)
    tokens = draw_unfiltered(logits.expand(4096, -1), even_grid(4096))
    shares = np.bincount(tokens.numpy(), minlength=vocab_size) / 4096
    expected = logits[0].double().softmax(0).numpy()
    # An interval of length p holds p * 4096 points of the grid, give or take one.
    assert np.abs(shares - expected).max() <= 1.01 / 4096
    assert (tokens.diff() >= 0).all()


def test_unfiltered_draws_never_give_a_masked_token():
    logits = make_logits(1, 3000)
    masked = torch.rand(3000, generator=torch.Generator().manual_seed(1)) < 0.9
    logits[0, masked] = -torch.inf
    edges = torch.tensor([0.0, 2.0**-52, 0.5, 1 - 2.0**-52], dtype=torch.float64)
    u = torch.cat([even_grid(2000), edges])
    assert not masked[draw_unfiltered(logits.expand(len(u), -1), u)].any()


def test_unfiltered_rows_without_a_distribution_fail():
    logits = make_logits(5, 1000)
    logits[1, 5] = torch.nan
    logits[2] = -torch.inf
    logits[3, 999] = torch.inf
    tokens = draw_unfiltered(logits, even_grid(5)).tolist()
    assert tokens[1:4] == [FAILED, MASKED, FAILED]
    assert min(tokens[0], tokens[4]) >= 0


logit_lists = st.lists(
    st.one_of(st.integers(-8, 8).map(float), st.floats(-20, 20, width=32), st.just(-torch.inf)),
    min_size=1,
    max_size=40,
).filter(lambda values: max(values) > -torch.inf)


@settings(max_examples=120, deadline=None)
@given(
    values=logit_lists,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.integers(0, 45),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
    num_candidates=st.integers(1, 45),
)
def test_filtered_shares_match_the_reference(
    values, temperature, top_k, top_p, min_p, num_candidates
):
    params = SamplingParams(
        max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    logits = torch.tensor(values, dtype=torch.float32)
    assume(is_clear_cut(logits, params))
    expected, probabilities = survivors(logits, params)
    u = even_grid(GRID)

    tokens = filtered(logits, params, u, len(values))
    shares = np.array([(tokens == token).double().mean().item() for token in expected])
    assert shares.sum() == pytest.approx(1.0)  # nothing else was drawn
    assert np.abs(shares - probabilities).max() <= 1.01 / GRID

    # With fewer candidates the draw gives the same token or is unresolved.
    is_limited_by_top_p_alone = min_p == 0.0 and not 0 < top_k < len(values)
    weights = ((logits - logits.max()).double() / temperature).exp()
    total = weights.sum() if is_limited_by_top_p_alone else None
    fewer = filtered(logits, params, u, num_candidates, total)
    differs = (fewer != tokens) & (fewer != UNRESOLVED)
    assert not differs.any()


def test_a_filtered_draw_is_resolved_if_it_falls_among_the_candidates():
    logits = make_logits(1, 5000)[0]
    params = SamplingParams(max_tokens=1, top_p=0.999)
    total = (logits.double() - logits.max()).exp().sum()
    everything = filtered(logits, params, even_grid(GRID), 5000)
    some = filtered(logits, params, even_grid(GRID), 128, total)
    is_resolved = some != UNRESOLVED
    assert torch.equal(some[is_resolved], everything[is_resolved])
    best = logits.double().softmax(0).sort(descending=True).values[:128].sum()
    # The nucleus ends far beyond the candidates, but most draws that fall among them count.
    assert best / 0.999 - 0.06 < is_resolved.double().mean() < best / 0.999 + 0.01
    assert not is_resolved.all()


def test_equal_logits_rank_in_the_order_of_ids():
    logits = torch.zeros(8)
    logits[[2, 5]] = 1.0
    params = SamplingParams(max_tokens=1, top_k=5, temperature=1e6)
    assert filtered(logits, params, even_grid(5), 8).tolist() == [2, 5, 0, 1, 3]


def test_draws_equal_to_the_last_candidate_are_unresolved():
    logits = torch.zeros(8)
    logits[[2, 5]] = 1.0
    params = SamplingParams(max_tokens=1, top_k=4, temperature=1e6)
    assert filtered(logits, params, even_grid(4), 4).tolist() == [2, 5, UNRESOLVED, UNRESOLVED]


@pytest.mark.parametrize("num_candidates", [8, 50])
@pytest.mark.parametrize("limit", [{"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_filtered_rows_without_a_distribution_fail(num_candidates, limit):
    params = SamplingParams(max_tokens=1, **limit)
    for bad in (torch.nan, torch.inf):
        logits = make_logits(1, 50)[0]
        logits[4] = bad
        assert filtered(logits, params, even_grid(1), num_candidates).tolist() == [FAILED]
    masked = torch.full((50,), -torch.inf)
    assert filtered(masked, params, even_grid(1), num_candidates).tolist() == [MASKED]


def test_filtered_draws_with_fewer_tokens_than_candidates():
    logits = torch.full((50,), -torch.inf)
    logits[[10, 20]] = 0.0
    params = SamplingParams(max_tokens=1, top_p=0.99)
    assert filtered(logits, params, even_grid(2), 8, torch.tensor(2.0).double()).tolist() == [
        10,
        20,
    ]
