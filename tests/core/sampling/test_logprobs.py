from __future__ import annotations

import pytest
import torch

from core.contract.errors import GenerationFailed
from core.sampling.logprobs import FLOOR, PromptScores
from core.sampling.sampler import Sampler
from tests.core.sampling.builders import make_logits, make_sequence


def prompt_logprobs(logits, targets, num_top):
    return list(PromptScores(logits, targets, num_top).collect())


def sample_one(logits, **params):
    (result,) = Sampler()(logits.clone(), [make_sequence(**params)])
    assert result.logprobs is not None
    return result.logprobs[0]


@pytest.mark.parametrize("vocab_size", [50, 4096, 50_257])
def test_values_match_log_softmax(vocab_size):
    logits = make_logits(1, vocab_size)
    entry = sample_one(logits, temperature=0.0, logprobs=20)
    expected = logits[0].double().log_softmax(0)
    values, ids = expected.sort(descending=True)
    assert [token for token, _ in entry.top] == ids[:20].tolist()
    assert [value for _, value in entry.top] == pytest.approx(values[:20].tolist(), abs=1e-5)
    assert entry.logprob == entry.top[0][1]
    assert entry.token_id == entry.top[0][0]


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_the_number_of_alternatives_is_as_requested(k):
    assert len(sample_one(make_logits(1, 100), logprobs=k).top) == k


def test_alternatives_are_limited_by_the_vocabulary():
    assert len(sample_one(make_logits(1, 7), logprobs=20).top) == 7


def test_the_batch_does_not_change_the_alternatives_of_a_request():
    logits = make_logits(3, 500)
    sequences = [make_sequence(logprobs=k) for k in (2, 20)] + [make_sequence()]
    few, many, none = Sampler()(logits.clone(), sequences)
    assert len(few.logprobs[0].top) == 2
    assert len(many.logprobs[0].top) == 20
    assert none.logprobs is None
    (alone,) = Sampler()(logits[:1].clone(), sequences[:1])
    assert alone == few


def test_logprobs_are_those_of_the_raw_distribution():
    logits = make_logits(1, 300)
    plain = sample_one(logits, temperature=0.0, logprobs=5, allowed_token_ids=(42,))
    for params in (
        {"temperature": 1.0},
        {"temperature": 2.0, "top_k": 3},
        {"logit_bias": {42: 100.0, 1: -100.0}},
        {"repetition_penalty": 1.7, "frequency_penalty": 1.0, "bad_words_ids": ((3,),)},
    ):
        assert sample_one(logits, logprobs=5, allowed_token_ids=(42,), **params) == plain


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_values_match_log_softmax_in_other_dtypes(dtype):
    logits = make_logits(1, 300).to(dtype)
    entry = sample_one(logits, temperature=0.0, logprobs=3)
    expected = logits.float().log_softmax(1)[0]
    assert entry.logprob == pytest.approx(expected.max().item(), abs=1e-6)


def test_a_token_has_the_same_value_in_both_places():
    logits = make_logits(64, 200, scale=2.0)
    sequences = [make_sequence(seed=i, logprobs=20) for i in range(64)]
    num_found = 0
    for result in Sampler()(logits, sequences):
        (entry,) = result.logprobs
        top = dict(entry.top)
        assert list(top.values()) == sorted(top.values(), reverse=True)
        if entry.token_id in top:
            num_found += 1
            assert top[entry.token_id] == entry.logprob
        else:
            assert entry.logprob <= min(top.values())
    assert 10 < num_found < 64


def test_equal_values_are_in_the_order_of_ids():
    logits = torch.zeros(1, 60)
    logits[0, [50, 20]] = 1.0
    entry = sample_one(logits, temperature=0.0, logprobs=2)
    assert [token for token, _ in entry.top] == [20, 50]
    logits = torch.zeros(1, 30)
    assert [token for token, _ in sample_one(logits, logprobs=20).top] == list(range(20))


def test_values_are_clamped_to_the_floor():
    logits = make_logits(1, 10)
    logits[0, 3:] = -torch.inf
    logits[0, 1] = -1e6
    entry = sample_one(logits, temperature=0.0, logprobs=10)
    assert min(value for _, value in entry.top) == FLOOR
    assert len(entry.top) == 10
    forced = sample_one(logits, temperature=0.0, logprobs=1, logit_bias={1: 2e6})
    assert (forced.token_id, forced.logprob) == (1, FLOOR)


def test_prompt_scores_match_log_softmax():
    logits = make_logits(20, 400)
    targets = list(range(100, 120))
    entries = prompt_logprobs(logits, targets, 3)
    expected = logits.double().log_softmax(1)
    assert [entry.token_id for entry in entries] == targets
    for row, entry in enumerate(entries):
        assert entry.logprob == pytest.approx(expected[row, targets[row]].item(), abs=1e-5)
        assert [token for token, _ in entry.top] == expected[row].topk(3).indices.tolist()


def test_prompt_scores_equal_those_of_generation():
    logits = make_logits(1, 400)
    generated = sample_one(logits, temperature=0.0, logprobs=4)
    assert prompt_logprobs(logits, [generated.token_id], 4) == [generated]


def test_prompt_scores_do_not_change_the_logits():
    logits = make_logits(4, 100)
    before = logits.clone()
    assert all(entry.top == () for entry in prompt_logprobs(logits, [1, 2, 3, 4], 0))
    assert torch.equal(logits, before)
    assert prompt_logprobs(logits[:0], [], 5) == []


def test_prompt_scores_with_nan_raise():
    logits = make_logits(4, 100)
    logits[2, 5] = torch.nan
    with pytest.raises(GenerationFailed):
        prompt_logprobs(logits, [1, 2, 3, 4], 1)


def test_prompt_scores_are_clamped_to_the_floor():
    logits = make_logits(1, 10)
    logits[0, 3:] = -torch.inf
    [entry] = prompt_logprobs(logits, [5], 10)
    assert entry.logprob == min(value for _, value in entry.top) == FLOOR
