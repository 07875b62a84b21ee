from __future__ import annotations

import torch

from core.sampling.processors.allowed_tokens import AllowedTokens
from core.sampling.result import RowFailure
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence


def test_other_tokens_are_masked():
    logits = make_logits(3, 20)
    before = logits.clone()
    sequences = [make_sequence(allowed_token_ids=(4, 4, 9)), make_sequence(allowed_token_ids=(0,))]
    AllowedTokens().apply(logits, [0, 2], sequences)
    expected = torch.full((3, 20), -torch.inf)
    expected[0, [4, 9]] = before[0, [4, 9]]
    expected[1] = before[1]
    expected[2, 0] = before[2, 0]
    assert torch.equal(logits, expected)


def test_the_mask_is_made_once_for_all_choices_of_a_request():
    ids, processor = tuple(range(0, 20, 2)), AllowedTokens()
    sequences = [make_sequence(seed=i, allowed_token_ids=ids) for i in range(4)]
    masks = set()
    for _ in range(3):
        processor.apply(make_logits(4, 20), [0, 1, 2, 3], sequences)
        masks |= {id(own) for own in processor._ids.of([ids] * 4)}
    assert len(masks) == 1
    processor.apply(make_logits(1, 20), [0], [make_sequence(allowed_token_ids=(1,))])
    assert len(processor._ids._kept) == 1  # what left the batch is dropped


def test_only_allowed_tokens_are_drawn():
    sequences = [make_sequence(seed=i, allowed_token_ids=(5, 6, 7)) for i in range(100)]
    results = Sampler()(make_logits(1, 50, scale=0.5).expand(100, -1).clone(), sequences)
    assert {result.token_ids[0] for result in results} == {5, 6, 7}


def test_a_row_with_unknown_allowed_tokens_fails_alone():
    sequences = [make_sequence(allowed_token_ids=(99,)), make_sequence(allowed_token_ids=(1,))]
    unknown, known = Sampler()(make_logits(2, 50), sequences)
    assert unknown.failure is RowFailure.MASKED
    assert known.token_ids == [1]
