from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.params import SamplingParams
from core.sampling.draw import load_row_draw
from core.sampling.result import RowFailure, SampledTokens
from core.sampling.sampler import Sampler as AnySampler
from core.sampling.torch_draw import draw_rows
from tests.core.sampling.builders import make_logits, make_sequence, survivors
from tests.support.each import each

EOS = 0

Sampler = functools.partial(
    AnySampler, draw=load_row_draw(1000, torch.float32, torch.device("cpu"))
)


def tokens_of(results: list[SampledTokens]) -> list[int]:
    assert not any(result.failure for result in results)
    return [result.token_ids[0] for result in results]


def sample_many(logits, num_rows, **params):
    """Tokens of ``num_rows`` sequences that differ only in their seeds."""
    sequences = [make_sequence(seed=seed, **params) for seed in range(num_rows)]
    sampler = Sampler((EOS,))
    return tokens_of(sampler(logits.expand(num_rows, -1).clone(), sequences))


def chi_square(tokens, ids, probabilities):
    counts = np.bincount(tokens, minlength=max(ids) + 1)[ids]
    assert counts.sum() == len(tokens)  # nothing else was drawn
    expected = probabilities * len(tokens)
    return (((counts - expected) ** 2) / expected).sum()


@each(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"top_k": 12, "top_p": 0.9, "min_p": 0.02, "temperature": 1.3},
    ],
)
def test_frequencies_over_seeds_match_the_distribution(params):
    logits = make_logits(1, 24, seed=3, scale=1.5)
    tokens = sample_many(logits, 4000, **params)
    ids, probabilities = survivors(logits[0], SamplingParams(max_tokens=1, **params))
    degrees = len(ids) - 1
    # Five standard deviations of the statistic, which is deterministic here.
    limit = degrees + 5 * (2 * degrees) ** 0.5
    assert chi_square(tokens, ids, probabilities) < limit


def test_frequencies_over_positions_match_the_distribution():
    logits = make_logits(1, 16, scale=1.0)
    sequence = make_sequence(seed=99)
    sampler = Sampler()
    tokens = []
    for _ in range(1500):
        tokens += tokens_of(sampler(logits.clone(), [sequence]))
        sequence.token_ids.append(tokens[-1])
    ids, probabilities = survivors(logits[0], SamplingParams(max_tokens=1))
    assert chi_square(tokens, ids, probabilities) < 15 + 5 * 30**0.5


fields = st.fixed_dictionaries(
    {"seed": st.integers(-(2**63), 2**63)},
    optional={
        "temperature": st.sampled_from([0.0, 0.1, 0.7, 1.0, 1.9]),
        "top_k": st.sampled_from([0, 1, 3, 40, 10_000]),
        "top_p": st.sampled_from([0.0, 0.1, 0.9, 0.9999, 1.0]),
        "min_p": st.sampled_from([0.0, 0.001, 0.1, 1.0]),
        "presence_penalty": st.sampled_from([-2.0, 0.5]),
        "frequency_penalty": st.sampled_from([-0.5, 2.0]),
        "repetition_penalty": st.sampled_from([0.8, 1.5]),
        "logit_bias": st.dictionaries(st.integers(0, 299), st.floats(-100, 100), max_size=4),
        "allowed_token_ids": st.lists(st.integers(0, 299), min_size=1, max_size=5, unique=True).map(
            tuple
        ),
        "bad_words_ids": st.lists(
            st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), max_size=3
        ).map(tuple),
        "min_tokens": st.integers(1, 10),
        "stop_token_ids": st.lists(st.integers(0, 9), max_size=2).map(tuple),
        "ignore_eos": st.booleans(),
        "logprobs": st.sampled_from([0, 3, 20]),
        "prompt": st.lists(st.integers(0, 299), min_size=1, max_size=8).map(tuple),
        "output": st.lists(st.integers(0, 9), max_size=8).map(tuple),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(fields, min_size=1, max_size=7),
    is_coarse=st.booleans(),
)
def test_a_row_gives_the_same_result_alone_and_in_any_batch(requests, is_coarse):
    logits = make_logits(len(requests), 300)
    if is_coarse:
        logits = logits.round()  # many equal logits
    sequences = [make_sequence(**request) for request in requests]
    sampler = Sampler((EOS,))
    together = sampler(logits.clone(), sequences)
    alone = [
        Sampler((EOS,))(logits[row : row + 1].clone(), [sequence])[0]
        for row, sequence in enumerate(sequences)
    ]
    assert together == alone
    assert sampler(logits.flip(0).clone(), sequences[::-1]) == alone[::-1]


@pytest.mark.parametrize("vocab_size", [4096, 40_000])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_row_gives_the_same_result_alone_and_in_a_large_batch(vocab_size, num_threads):
    kinds = [
        {"temperature": 0.0},
        {},
        {"temperature": 0.8},
        {"top_k": 50},
        {"top_p": 0.9},
        {"min_p": 0.05},
    ]
    logits = make_logits(24, vocab_size, scale=2.5).bfloat16()
    sequences = [make_sequence(seed=i, logprobs=5, **kinds[i % len(kinds)]) for i in range(24)]
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    together = Sampler()(logits.clone(), sequences)
    alone = [Sampler()(logits[i : i + 1].clone(), sequences[i : i + 1])[0] for i in range(24)]
    torch.set_num_threads(before)
    assert together == alone


def test_equal_seeds_repeat_and_different_seeds_differ():
    logits = make_logits(1, 1000, scale=1.0)
    tokens = sample_many(logits, 50)
    assert tokens == sample_many(logits, 50)
    assert len(set(tokens)) > 10


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1])
def test_every_integer_is_a_valid_seed(seed):
    logits = make_logits(1, 100)
    sampler = Sampler()
    assert tokens_of(sampler(logits.clone(), [make_sequence(seed=seed)])) == tokens_of(
        sampler(logits.clone(), [make_sequence(seed=seed)])
    )


def test_the_draw_depends_on_the_position():
    logits = make_logits(1, 1000, scale=1.0).expand(30, -1).clone()
    sequences = [make_sequence(output=(5,) * i, seed=1) for i in range(30)]
    assert len(set(tokens_of(Sampler()(logits, sequences)))) > 10


def test_greedy_takes_the_lowest_id_on_ties_and_ignores_filters():
    logits = torch.zeros(1, 50)
    logits[0, [9, 30]] = 4.0
    for seed in range(5):
        sequence = make_sequence(seed=seed, temperature=0.0, top_k=3, top_p=0.1, min_p=0.2)
        assert tokens_of(Sampler()(logits.clone(), [sequence])) == [9]


@pytest.mark.parametrize("limit", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 0.0}, {"top_p": 1e-9}])
def test_filters_that_leave_only_the_best_token_are_greedy(limit):
    logits = make_logits(1, 500, scale=0.5).round()
    (greedy,) = sample_many(logits, 1, temperature=0.0)
    assert set(sample_many(logits, 40, temperature=1.0, **limit)) == {greedy}


def test_extreme_temperatures():
    logits = make_logits(1, 40)
    logits[0, 20:] = -torch.inf
    for limit in ({}, {"top_p": 0.999}, {"top_k": 30}):
        tokens = sample_many(logits, 400, temperature=1e300, **limit)
        assert set(tokens) == set(range(20))
        assert set(sample_many(logits, 20, temperature=2e-5, **limit)) == {int(logits.argmax())}


def test_equal_logits_at_the_end_of_top_k():
    logits = torch.zeros(1, 3000)
    logits[0, 1500] = 1.0
    tokens = sample_many(logits, 300, top_k=100)
    assert set(tokens) <= {1500, *range(99)}
    assert len(set(tokens)) > 60


def test_a_row_with_nan_or_infinity_fails_alone():
    kinds = [{"temperature": 0.0}, {}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1, "logprobs": 2}]
    logits = make_logits(15, 600)
    sequences = [make_sequence(**kinds[i % 5], seed=i) for i in range(15)]
    healthy = Sampler()(logits.clone(), sequences)
    for row, bad in zip(
        range(5, 10), [torch.nan, torch.inf, torch.nan, torch.nan, torch.inf], strict=True
    ):
        logits[row, 100 + row] = bad
    results = Sampler()(logits, sequences)
    for row, result in enumerate(results):
        if 5 <= row < 10:
            assert result == SampledTokens([], failure=RowFailure.NAN)
        else:
            assert result == healthy[row]


def test_a_row_with_every_token_masked_fails():
    sequences = [
        make_sequence(temperature=t, allowed_token_ids=(EOS,), min_tokens=3) for t in (0.0, 1.0)
    ]
    results = Sampler((EOS,))(make_logits(2, 50), sequences)
    assert [result.failure for result in results] == [RowFailure.MASKED] * 2


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.0}, {"top_k": 4}, {"min_p": 0.1}])
def test_nan_in_a_masked_row_is_not_taken_for_a_mask(fields):
    logits = make_logits(2, 50)
    logits[1, 7] = torch.nan
    sequences = [make_sequence(allowed_token_ids=(60,), **fields), make_sequence(**fields)]
    results = Sampler()(logits, sequences)
    assert [result.failure for result in results] == [RowFailure.MASKED, RowFailure.NAN]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_greedy_row_has_the_same_precision_in_any_batch(dtype):
    logits = torch.zeros(2, 50, dtype=dtype)
    logits[:, 7] = 1.0
    logits[:, 20] = 1.0 + 1e-12  # in float32 equal to that of 7
    greedy, drawn = make_sequence(temperature=0.0), make_sequence()
    assert tokens_of(Sampler()(logits[:1].clone(), [greedy])) == [7]
    assert tokens_of(Sampler()(logits.clone(), [greedy, drawn]))[0] == 7


def test_an_empty_batch_gives_no_results():
    assert Sampler()(torch.empty(0, 10), []) == []


def test_a_sampler_follows_changes_of_the_batch():
    sampler = Sampler()
    logits = make_logits(4, 200)
    sequences = [make_sequence(seed=i, top_k=20 * (i % 2)) for i in range(4)]
    for chosen in ([0], [0, 1], [1, 3], [3, 2, 1, 0], [2]):
        for _ in range(2):
            batch = [sequences[row] for row in chosen]
            results = sampler(logits[chosen].clone(), batch)
            assert results == Sampler()(logits[chosen].clone(), batch)
            for sequence, token in zip(batch, tokens_of(results), strict=True):
                sequence.token_ids.append(token)


def test_a_custom_processor_applies_to_its_rows_only():
    class OnlyOdd:
        reads_tokens = False

        def applies(self, params):
            return params.temperature == 1.0

        def apply(self, logits, rows, sequences):
            logits[rows, ::2] = -torch.inf

    sequences = [make_sequence(), make_sequence(temperature=0.0)]
    logits = make_logits(2, 50)
    logits[1, 10] = 100.0
    odd, best = tokens_of(Sampler(processors=(OnlyOdd(),))(logits, sequences))
    assert odd % 2 == 1
    assert best == 10


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_and_cpu_give_the_same_tokens():
    kinds = [{"temperature": 0.0}, {}, {"top_k": 50}, {"top_p": 0.9}, {"min_p": 0.05}]
    logits = make_logits(25, 5000, scale=2.5)
    sequences = [
        make_sequence(seed=i, logprobs=5, frequency_penalty=0.5, output=(1, 2), **kinds[i % 5])
        for i in range(25)
    ]
    # the kernels for CUDA draw other tokens with the same numbers
    on_cpu = tokens_of(Sampler(draw=draw_rows)(logits.clone(), sequences))
    assert tokens_of(Sampler(draw=draw_rows)(logits.cuda(), sequences)) == on_cpu
