"""Logits of the tokens that are asked for, and best tokens without logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.kernels.cpu.library import kernels
from core.run.forward import EagerForward
from core.sampling.greedy import FAILED, MASKED, greedy_tokens
from tests.support.described import BFLOAT16, FLOAT32, INT8, edited, executor_of, wrapped
from tests.support.each import each
from tests.support.threads import num_threads
from tests.support.tiny_engine import request, run

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

CHUNKED = tuple(tuple(range(3, 3 + n)) for n in (190, 5))
"""Prompts of different lengths, one of them in chunks."""

UNWRITTEN = 1e30


class Spy:
    """A forward pass that keeps what it computes, with the logits of all tokens beside it."""

    def __init__(self, eager: EagerForward) -> None:
        self.eager = eager
        self.steps: list[tuple[ModelInput, Logits, torch.Tensor]] = []
        """The input of each step, its logits, and those of all tokens."""

    def __call__(self, batch: ModelInput) -> Logits:
        each_token = torch.arange(len(batch.token_ids))
        whole = replace(batch, logits_indices=each_token, wants_best=False, layout=None)
        logits = self.eager(whole).values.clone()
        self.eager(replace(batch, wants_best=False, layout=None)).values.fill_(UNWRITTEN)
        found = self.eager(batch)
        self.steps.append((batch, Logits(found.values.clone(), found.best), logits))
        return Logits(logits[batch.logits_indices], found.best)


def spy_on(
    source: str | Path,
    weights: tuple[str, str] = FLOAT32,
    prompts: tuple[tuple[int, ...], ...] = CHUNKED,
    max_tokens: int = 8,
    **params: Any,
) -> Spy:
    spies: list[Spy] = []

    def wrap(eager: EagerForward) -> Spy:
        spies.append(Spy(eager))
        return spies[0]

    with num_threads(2):
        engine = wrapped(executor_of(source, weights), wrap, max_num_seqs=40)
        run(engine, [request(f"{i}", [*p], max_tokens, **params) for i, p in enumerate(prompts)])
    return spies[0]


def check_best_tokens(spy: Spy) -> set[int]:
    """All steps have found the best tokens and written no logits; returns the tokens."""
    for batch, logits, each_token in spy.steps:
        assert batch.wants_best
        assert logits.best == greedy_tokens(each_token[batch.logits_indices]).tolist()
        assert (logits.values == UNWRITTEN).all(), "nobody reads the logits"
    return {token for _, logits, _ in spy.steps for token in logits.best or ()}


@each("family", ["gpt2", "qwen3", "qwen2_moe", "gemma3", "cohere2"])
def test_tokens_without_logits_change_no_others(family: str) -> None:
    """None of a chunk that does not end its prompt is asked for, some of several, or all."""
    spy = spy_on(family, logprobs=0)
    sizes = [batch.sizes for batch, _, _ in spy.steps]
    assert {0 if not n else 1 + (n == num_tokens) for num_tokens, n in sizes} == {0, 1, 2}
    assert any(1 < num_logits < num_tokens for num_tokens, num_logits in sizes)
    for batch, logits, each_token in spy.steps:
        assert not logits.best
        assert torch.equal(logits.values, each_token[batch.logits_indices])


@each("family", ["gpt2", "qwen3", "gemma3", "cohere2", "phi"])
def test_best_tokens_are_those_of_the_logits(family: str) -> None:
    spy = spy_on(family)
    assert len(spy.steps) > 8
    assert len(check_best_tokens(spy)) > 1


@each("weights", [FLOAT32, BFLOAT16, INT8])
def test_best_tokens_of_many_rows(weights: tuple[str, str]) -> None:
    """Several tiles of rows, and both threads."""
    spy = spy_on("qwen3", weights, tuple((3 + i, 9) for i in range(35)), max_tokens=40)
    assert max(len(logits.values) for _, logits, _ in spy.steps) == 35
    check_best_tokens(spy)


def all_equal(rows: torch.Tensor) -> None:
    rows.zero_()


def ties(rows: torch.Tensor) -> None:
    """Give some tokens the same logits, and all others zero."""
    same = rows[1].clone()
    rows.zero_()
    rows[[9, 40, 150, -1]] = same


def nan(rows: torch.Tensor) -> None:
    rows[150, 0] = torch.nan


def infinity(rows: torch.Tensor) -> None:
    rows[150, 0] = torch.inf


def infinity_everywhere(rows: torch.Tensor) -> None:
    """Make a row of logits infinite with one sign, so that it is masked or fails."""
    rows.zero_()
    rows[:, 0] = torch.inf


EXPECTED = {all_equal: {0}, ties: {0, 9}, nan: {FAILED}, infinity_everywhere: {FAILED, MASKED}}


@pytest.mark.parametrize("change", [*EXPECTED, infinity])
def test_best_tokens_of_unusual_logits(
    change: Callable[[torch.Tensor], None], tmp_path: Path
) -> None:
    folder = edited("qwen3", lambda model: change(model.lm_head.weight), tmp_path)
    spy = spy_on(folder, prompts=tuple((3 + i,) for i in range(35)), max_tokens=2)
    found = check_best_tokens(spy)
    assert found == EXPECTED.get(change, found)


@each(
    "params",
    [{"temperature": 1.0}, {"logit_bias": {5: 1.0}}, {"prompt_logprobs": 0}, {"logprobs": 0}],
)
def test_best_tokens_that_nobody_wants_are_not_looked_for(params: dict[str, Any]) -> None:
    assert any(logits.best is None for _, logits, _ in spy_on("gpt2", **params).steps)
