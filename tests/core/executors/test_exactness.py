"""The compiled executor computes what transformers does, in every format and on every CPU."""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from core.executors.compiled import CompiledExecutor
from core.kernels.cpu.library import kernels
from tests.core.models.twins import compiled_run
from tests.support.builds import BUILDS, build
from tests.support.checkpoints import VOCAB_SIZE
from tests.support.described import (
    BFLOAT16,
    FAMILIES,
    FLOAT32,
    INT8,
    assembled,
    executor_of,
    loaded,
    original,
    saved,
)
from tests.support.each import each
from tests.support.mixtures import mixture
from tests.support.tiny_engine import assert_generated, prompts, run_prompts

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

IDS = (torch.arange(40) * 31 + 5) % VOCAB_SIZE


def computed(executor: CompiledExecutor) -> torch.Tensor:
    with torch.inference_mode():
        return compiled_run(executor, 1).whole([IDS])[0]


def theirs(model: Any) -> torch.Tensor:
    """transformers' logits."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        logits: torch.Tensor = model(IDS[None], use_cache=False).logits[0].float()
    return logits


@pytest.mark.slow
@each("family", FAMILIES)
def test_greedy_answers_are_those_of_generate(family: str) -> None:
    """Prompts longer than windows, in chunks, in one batch, some on cached blocks."""
    given = prompts(1)
    engine = assembled(loaded(family), block_size=4).engine
    assert_generated(original(family), given, run_prompts(engine, given, 24))
    assert engine.stats().num_cached_tokens > 0


@pytest.mark.parametrize("name", BUILDS)
def test_kernels_of_every_cpu_compute_the_same(name: str) -> None:
    for family in FAMILIES:
        found = computed(executor_of(family, FLOAT32, build(name)))
        torch.testing.assert_close(found, theirs(original(family)), rtol=1e-4, atol=1e-4)


@each("family", FAMILIES)
def test_bfloat16_is_nearer_to_float32_than_in_transformers(family: str) -> None:
    model = copy.deepcopy(original(family)).bfloat16()
    exact = theirs(copy.deepcopy(model).float())
    ours = computed(executor_of(saved(family, torch.bfloat16), BFLOAT16))
    assert (ours - exact).abs().mean() <= (theirs(model) - exact).abs().mean()


@each("family", FAMILIES)
def test_int8_logits_are_close(family: str) -> None:
    expected = theirs(original(family))
    error = computed(executor_of(family, INT8)) - expected
    assert error.abs().mean() < 0.1 * expected.std()


SIZES = [(1, 1), (3, 3), (16, 1), (21, 5), (40, 40)]
"""Experts and those of a token: one vector of logits, a part of one, several; one, and all."""

ROUTERS = [
    *(("qwen3_moe", {"num_experts": n, "num_experts_per_tok": k}) for n, k in SIZES),
    *product(("qwen3_moe", "olmoe"), ({"norm_topk_prob": False}, {"norm_topk_prob": True})),
]


@pytest.mark.parametrize(("family", "fields"), ROUTERS)
def test_routers_choose_and_weigh_as_in_transformers(
    family: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    model = mixture(family, **fields)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(computed(executor_of(tmp_path)), theirs(model), rtol=1e-4, atol=1e-4)
