"""Mixtures with packed experts: token for token what ``generate`` gives."""

import copy
from typing import Any

import pytest
from core.fusion.cpu.catalogue import fuse_for_cpu

from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.hook import AttentionHook
from tests.support.mixtures import MIXTURES, shared_mixture
from tests.support.tiny_engine import assert_generated, build_engine, prompts, run_prompts

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_batch_equals_generate(family: str) -> None:
    def fuse(model: Any, hook: AttentionHook) -> None:
        attention = list(zip(hook.modules, hook.layers, strict=True))
        assert fuse_for_cpu(KERNELS, model, attention, Format.FLOAT32)["experts"] == 2

    given = prompts(1)
    model = copy.deepcopy(shared_mixture(family))
    engine = build_engine(family, model=model, backend="cpu", prepare=fuse)
    answers = run_prompts(engine, given, 24)
    assert_generated(shared_mixture(family), given, answers)
    assert engine.stats().num_cached_tokens > 0
