"""Tokens chosen on the device and collected after its memory was reused."""

from __future__ import annotations

import pytest
import torch

from core.sampling.greedy import greedy_tokens
from core.sampling.result import RowFailure
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence

LIMITED = [{"top_p": 0.99}, {"min_p": 1e-4}, {"top_k": 90}, {}, {"temperature": 0.0}]


def crowd():
    return [
        make_sequence(**{"seed": i, "temperature": 1.5, "logprobs": i % 3, **LIMITED[i % 5]})
        for i in range(20)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_may_be_overwritten_before_tokens_are_collected(dtype):
    logits = make_logits(20, 400).to(dtype)
    expected = Sampler()(logits.clone(), crowd())
    buffer = logits.clone()
    pending = Sampler().launch(buffer, crowd())
    buffer.fill_(torch.nan)
    assert pending.collect() == expected


def test_tokens_in_flight_count_as_positions():
    logits = make_logits(1, 400)
    known = make_sequence(output=(7, 8), seed=3)
    in_flight = make_sequence(output=(7,), seed=3)
    in_flight.num_in_flight = 1
    [expected] = Sampler()(logits.clone(), [known])
    [found] = Sampler()(logits.clone(), [in_flight])
    assert found == expected


def test_known_greedy_tokens_are_used():
    logits = make_logits(3, 50)
    logits[1] = torch.nan
    best = greedy_tokens(logits)
    greedy = [make_sequence(temperature=0.0) for _ in range(3)]
    assert Sampler().launch(logits, greedy, greedy_tokens=best).tokens is best
    results = Sampler().launch(logits, greedy, greedy_tokens=best).collect()
    assert [result.failure for result in results] == [None, RowFailure.NAN, None]
    edited = [*greedy[:2], make_sequence(temperature=0.0, logit_bias={5: 100.0})]
    assert Sampler().launch(logits, edited, greedy_tokens=best).collect()[2].token_ids == [5]


@pytest.mark.parametrize(
    ("params", "is_enough"),
    [
        ({"temperature": 0.0}, True),
        ({"temperature": 1.0, "top_k": 1}, True),
        ({"temperature": 1.0}, False),
        ({"temperature": 0.0, "logprobs": 0}, False),
        ({"temperature": 0.0, "logit_bias": {5: 1.0}}, False),
    ],
)
def test_where_greedy_tokens_are_enough_logits_are_not_read(params, is_enough):
    rows = [make_sequence(temperature=0.0), make_sequence(**params)]
    sampler = Sampler()
    assert sampler.prepare(rows) == is_enough
    if is_enough:
        undefined = torch.full((2, 50), torch.nan)
        pending = sampler.launch(undefined, rows, greedy_tokens=torch.tensor([7, 9]))
        assert [result.token_ids for result in pending.collect()] == [[7], [9]]


@pytest.mark.parametrize(
    ("params", "must_land"),
    [
        ({}, False),
        ({"temperature": 0.0, "logprobs": 3}, False),
        ({"logit_bias": {1: 1.0}, "min_tokens": 3, "allowed_token_ids": (1, 2)}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.5}, True),
        ({"bad_words_ids": ((1,),)}, True),
    ],
)
def test_a_batch_whose_edits_read_tokens_must_land(params, must_land):
    sequences = [make_sequence(), make_sequence(**params)]
    assert Sampler().launch(make_logits(2, 50), sequences).must_land == must_land
