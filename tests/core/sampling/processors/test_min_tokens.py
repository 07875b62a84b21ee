from __future__ import annotations

import pytest
import torch

from core.sampling.processors.min_tokens import MinTokens
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence


@pytest.mark.parametrize(
    ("num_output", "params", "masked"),
    [
        (2, {"min_tokens": 3}, {0, 1}),
        (3, {"min_tokens": 3}, set()),
        (0, {"min_tokens": 1, "stop_token_ids": (7,)}, {0, 1, 7}),
        (0, {"min_tokens": 1, "stop_token_ids": (7,), "ignore_eos": True}, {7}),
        (0, {"min_tokens": 1, "ignore_eos": True}, set()),
        (0, {"min_tokens": 1, "stop_token_ids": (1, 500)}, {0, 1}),
    ],
)
def test_end_tokens_are_masked_while_the_output_is_too_short(num_output, params, masked):
    logits = make_logits(2, 12)
    before = logits.clone()
    MinTokens((0, 1)).apply(logits, [1], [make_sequence(output=(5,) * num_output, **params)])
    expected = before.clone()
    expected[1, sorted(masked)] = -torch.inf
    assert torch.equal(logits, expected)


def test_generation_continues_until_min_tokens():
    sampler = Sampler((0,))
    sequence = make_sequence(temperature=0.0, min_tokens=10)
    while sequence.token_ids[-1] != 0:
        logits = torch.zeros(1, 20)
        logits[0, 0] = 50.0
        (result,) = sampler(logits, [sequence])
        sequence.token_ids += result.token_ids
    assert sequence.num_output_tokens == 11
