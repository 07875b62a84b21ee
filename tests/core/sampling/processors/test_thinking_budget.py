from __future__ import annotations

import gc

import pytest
import torch

from core.contract.errors import InvalidRequest
from core.contract.params import Thinking
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.sampling.sampler import Sampler
from tests.support.builders import make_sequence

TEXTS = {0: b"<think>", 1: b"</", 2: b"think>", 3: b"</think>", 4: b"a", 5: b"<th", 6: b"ink>"}
END = (1, 2)


def thinking(budget, *, is_open=True, end=END):
    return Thinking(
        begin="<think>", end="</think>", end_token_ids=end, is_open=is_open, budget=budget
    )


@pytest.fixture
def sampler():
    return Sampler(processors=(ThinkingBudget(TEXTS.__getitem__),))


def run(sampler, sequence, *, wish=4, num_tokens=8):
    """The tokens of a model that always wants the same one."""
    for _ in range(num_tokens):
        logits = torch.zeros(2, 7)
        logits[:, wish] = 9.0
        free = make_sequence((1,), temperature=0.0)
        result, other = sampler(logits, [sequence, free])
        assert other.token_ids == [wish]
        sequence.token_ids += result.token_ids
    return sequence.token_ids[sequence.num_prompt_tokens :]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(0, [1, 2, 4, 4]), (3, [4, 4, 4, 1, 2, 4, 4]), (None, [4] * 8)],
)
def test_the_marker_is_forced_after_the_budget(sampler, budget, expected):
    sequence = make_sequence((9, 9), temperature=0.0, thinking=thinking(budget))
    assert run(sampler, sequence)[: len(expected)] == expected


def test_a_marker_of_one_token(sampler):
    sequence = make_sequence((9, 9), temperature=0.0, thinking=thinking(2, end=(3,)))
    assert run(sampler, sequence)[:5] == [4, 4, 3, 4, 4]


def test_thinking_that_ended_by_itself_is_left_alone(sampler):
    for marker in ([3], [1, 2]):
        sequence = make_sequence((9,), temperature=0.0, thinking=thinking(3))
        sequence.token_ids += [4, *marker]
        assert run(sampler, sequence)[1 + len(marker) :] == [4] * 8


def test_a_marker_half_written_is_completed(sampler):
    sequence = make_sequence((9,), temperature=0.0, thinking=thinking(2))
    sequence.token_ids += [4, 1]
    assert run(sampler, sequence)[:4] == [4, 1, 2, 4]


@pytest.mark.parametrize("begin", [[0], [5, 6]])
def test_counting_begins_with_the_marker_unless_the_prompt_has_it(sampler, begin):
    sequence = make_sequence((0,), temperature=0.0, thinking=thinking(2, is_open=False))
    sequence.token_ids += [4, 4, 4, *begin]
    assert run(sampler, sequence)[3 + len(begin) :][:5] == [4, 4, 1, 2, 4]


def test_a_marker_that_is_excluded_is_not_forced():
    class Excludes:
        reads_tokens = False

        def applies(self, _params):
            return True

        def apply(self, logits, rows, _sequences):
            logits[rows, 1] = -torch.inf

    sampler = Sampler(processors=(Excludes(), ThinkingBudget(TEXTS.__getitem__)))
    sequence = make_sequence((9,), temperature=0.0, thinking=thinking(1))
    assert run(sampler, sequence) == [4] * 8


def test_nothing_is_kept_of_sequences_that_are_gone(sampler):
    (processor,) = sampler._processors
    sequence = make_sequence((9,), temperature=0.0, thinking=thinking(1))
    run(sampler, sequence, num_tokens=2)
    assert len(processor._watches) == 1
    sampler(torch.zeros(1, 7), [make_sequence((9,), temperature=0.0)])
    del sequence
    gc.collect()
    assert not processor._watches


def test_the_budget_is_a_number_of_tokens():
    with pytest.raises(InvalidRequest) as refused:
        thinking(-1)
    assert refused.value.param == "thinking_token_budget"
