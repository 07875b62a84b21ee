"""The best tokens that the kernel of a whole language model finds without writing logits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.attention.cpu_backend import PagedCPUBackend
from core.fusion.cpu.catalogue import fuse_for_cpu
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.forward import EagerForward, ForwardPass, Logits
from core.model.hook import AttentionHook
from core.model_input import ModelInput
from core.sampling.greedy import FAILED, MASKED, greedy_tokens
from tests.support.checkpoints import tiny_model
from tests.support.each import each
from tests.support.tiny_engine import build_engine, request, run

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


PROMPTS = tuple(tuple(range(3, 3 + n)) for n in (90, 5))
"""Of different lengths, one of them in chunks."""


def fused(model: Any, hook: AttentionHook, weights: Format = Format.FLOAT32) -> dict[str, int]:
    attention = list(zip(hook.modules, hook.layers, strict=True))
    return fuse_for_cpu(KERNELS, model, attention, weights)


class Spy:
    """A forward pass that keeps what it computes, and the logits where they are not wanted."""

    def __init__(self, eager: EagerForward) -> None:
        self.eager = eager
        self.steps: list[tuple[ModelInput, Logits]] = []
        self.num_written = 0  # steps that have written logits in place of those before

    def __call__(self, batch: ModelInput) -> Logits:
        before = self.eager(replace(batch, wants_best=False, layout=None)).values
        values = before.clone()
        before.fill_(1e30)
        logits = self.eager(batch)
        self.num_written += bool((logits.values != 1e30).any())
        self.steps.append((batch, Logits(values, logits.best)))
        return logits


def spy_on(
    family: str,
    *,
    prompts: tuple[tuple[int, ...], ...] = PROMPTS,
    max_tokens: int = 8,
    weights: Format = Format.FLOAT32,
    edit: Callable[[Any], None] = lambda model: None,
    **params: Any,
) -> Spy:
    """Serve prompts; ``edit`` changes the model when it is fused."""
    spies: list[Spy] = []

    def prepare(model: Any, hook: AttentionHook) -> None:
        assert fused(model, hook, weights)["model"] == 1
        edit(model)

    def wrap(eager: EagerForward) -> ForwardPass:
        spies.append(Spy(eager))
        return spies[0]

    engine = build_engine(
        family,
        model=copy.deepcopy(tiny_model(family)),
        prepare=prepare,
        backend=PagedCPUBackend,
        wrap=wrap,
        max_num_seqs=40,
    )
    run(engine, [request(f"{i}", [*ids], max_tokens, **params) for i, ids in enumerate(prompts)])
    return spies[0]


def served(family: str, **params: Any) -> list[tuple[ModelInput, Logits]]:
    return spy_on(family, **params).steps


def check_best_tokens(spy: Spy) -> None:
    for batch, logits in spy.steps:
        assert batch.wants_best
        assert logits.best is not None
        assert logits.best == greedy_tokens(logits.values).tolist()
    assert spy.num_written == 0, "nobody reads the logits"


@each("family", ["gpt2", "qwen3"])
def test_best_tokens_are_those_of_the_logits(family: str) -> None:
    spy = spy_on(family)
    assert len(spy.steps) > 8
    check_best_tokens(spy)


@each("weights", [Format.FLOAT32, Format.BFLOAT16, Format.INT8])
def test_best_tokens_of_many_rows(weights: Format) -> None:
    """Several tiles of rows, and both threads."""
    spy = spy_on(
        "qwen3", prompts=tuple((3 + i, 9) for i in range(35)), max_tokens=40, weights=weights
    )
    assert max(len(logits.values) for _, logits in spy.steps) == 35
    check_best_tokens(spy)


def all_equal(columns: torch.Tensor) -> None:
    columns.zero_()


def ties(columns: torch.Tensor) -> None:
    """Some columns are equal, and so are all others."""
    same = columns[1].clone()
    columns.zero_()
    columns[[9, 40, 150, -1]] = same


def nan(columns: torch.Tensor) -> None:
    columns[150, 0] = torch.nan


def infinity(columns: torch.Tensor) -> None:
    columns[150, 0] = torch.inf


def infinity_everywhere(columns: torch.Tensor) -> None:
    """Of one sign in a row, so that the row is masked or fails."""
    columns.zero_()
    columns[:, 0] = torch.inf


@each("change", [all_equal, ties, nan, infinity, infinity_everywhere])
def test_best_tokens_of_unusual_logits(change: Callable[[torch.Tensor], None]) -> None:
    def edit(model: Any) -> None:
        weight = model.lm_head.weight
        panels = weight.data.view(torch.float32).view(-1, weight.num_columns, weight.kernels.panel)
        columns = panels.transpose(1, 2).reshape(-1, weight.num_columns)[: weight.num_rows].clone()
        change(columns)
        for i, column in enumerate(columns):
            panels[i // weight.kernels.panel, :, i % weight.kernels.panel] = column

    spy = spy_on("qwen3", prompts=tuple((3 + i,) for i in range(35)), max_tokens=2, edit=edit)
    check_best_tokens(spy)
    found = {token for _, logits in spy.steps for token in logits.best or ()}
    expected = {all_equal: {0}, ties: {0, 9}, nan: {FAILED}, infinity_everywhere: {FAILED, MASKED}}
    assert found == expected.get(change, found)


@each(
    "params",
    [{"temperature": 1.0}, {"logit_bias": {5: 1.0}}, {"prompt_logprobs": 0}, {"logprobs": 0}],
)
def test_best_tokens_that_nobody_wants_are_not_looked_for(params: dict[str, Any]) -> None:
    assert any(logits.best is None for _, logits in served("gpt2", **params))
