from __future__ import annotations

import torch

from core.sampling.processors.bias import Bias
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence


def test_each_listed_token_gets_its_bias():
    logits = make_logits(3, 20)
    before = logits.clone()
    sequences = [make_sequence(logit_bias={3: 1.5, 7: -2.0}), make_sequence(logit_bias={19: 0.25})]
    Bias().apply(logits, [0, 2], sequences)
    expected = before.clone()
    expected[0, 3] += 1.5
    expected[0, 7] -= 2.0
    expected[2, 19] += 0.25
    assert torch.equal(logits, expected)


def test_a_bias_of_100_forces_or_bans_a_token():
    logits = make_logits(2, 100)
    best = int(logits[0].argmax())
    sequences = [
        make_sequence(temperature=0.0, logit_bias={best: -100.0}),
        make_sequence(temperature=1.0, logit_bias={55: 100.0}),
    ]
    forbidden, forced = Sampler()(logits.clone(), sequences)
    assert forbidden.token_ids == [int(logits[0].topk(2).indices[1])]
    assert forced.token_ids == [55]


def test_unknown_tokens_are_ignored():
    logits = make_logits(1, 20)
    before = logits.clone()
    sequence = make_sequence(logit_bias={20: 1.0, -1: 1.0, 10**30: 1.0})
    Bias().apply(logits, [0], [sequence])
    assert torch.equal(logits, before)
