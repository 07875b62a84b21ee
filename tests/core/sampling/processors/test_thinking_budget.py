from __future__ import annotations

import pytest
import torch

from core.contract.errors import InvalidRequest
from core.contract.params import Thinking
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.sampling.sampler import Sampler
from core.text.thinking import ThinkingScanner
from tests.core.sampling.builders import make_sequence

TEXTS = ["<think>", "</", "think>", "</think>", "a", "<th", "ink>"]
END = (1, 2)


def make_thinking(budget, *, is_open=True, end=END):
    return Thinking(
        begin="<think>", end="</think>", end_token_ids=end, is_open=is_open, budget=budget
    )


def run(thinking, *, output=(), wanted=4, num_tokens=8, before=()):
    """The output of a model that always prefers one token, scanned as the engine does."""
    sampler = Sampler(processors=(*before, ThinkingBudget()))
    sequence = make_sequence((9, 9), temperature=0.0, thinking=thinking)
    scanner = ThinkingScanner(thinking)

    def append(token_ids):
        for token_id in token_ids:
            sequence.token_ids.append(token_id)
            scanner.feed(TEXTS[token_id])
        sequence.must_end_thinking = scanner.must_end

    append(output)
    for _ in range(num_tokens):
        logits = torch.zeros(2, 7)
        logits[:, wanted] = 9.0
        free = make_sequence((1,), temperature=0.0)
        result, other = sampler(logits, [sequence, free])
        assert other.token_ids == [wanted]
        append(result.token_ids)
    return sequence.token_ids[sequence.num_prompt_tokens :]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(0, [1, 2, 4, 4]), (3, [4, 4, 4, 1, 2, 4, 4]), (None, [4] * 8)],
)
def test_the_end_marker_is_forced_after_the_budget(budget, expected):
    assert run(make_thinking(budget))[: len(expected)] == expected


def test_an_end_marker_of_one_token():
    assert run(make_thinking(2, end=(3,)))[:5] == [4, 4, 3, 4, 4]


@pytest.mark.parametrize("marker", [[3], [1, 2]])
def test_nothing_is_forced_after_the_thinking_has_ended(marker):
    output = [4, *marker]
    assert run(make_thinking(3), output=output)[len(output) :] == [4] * 8


def test_an_end_marker_that_has_begun_is_completed():
    assert run(make_thinking(2), output=[4, 1])[:4] == [4, 1, 2, 4]


@pytest.mark.parametrize("begin", [[0], [5, 6]])
def test_the_budget_starts_after_the_begin_marker(begin):
    found = run(make_thinking(2, is_open=False), output=begin)
    assert found[len(begin) :][:5] == [4, 4, 1, 2, 4]


def test_a_begin_marker_inside_the_answer_is_text():
    assert run(make_thinking(2, is_open=False), output=[4, 0]) == [4, 0] + [4] * 8


def test_a_masked_end_marker_is_not_forced():
    class Excludes:
        reads_tokens = False

        def applies(self, _params):
            return True

        def apply(self, logits, rows, _sequences):
            logits[rows, 1] = -torch.inf

    assert run(make_thinking(1), before=(Excludes(),)) == [4] * 8


def test_a_negative_budget_is_refused():
    with pytest.raises(InvalidRequest) as refused:
        make_thinking(-1)
    assert refused.value.param == "thinking_token_budget"
