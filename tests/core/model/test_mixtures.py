"""Mixtures with packed experts: token for token what ``generate`` gives."""

import copy
import functools
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from core.fusion.cpu.catalogue import fuse_for_cpu
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.hook import AttentionHook
from tests.support.mixtures import MIXTURES, shared_mixture
from tests.support.tiny_engine import build_engine, prompts, request, run, token_ids

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


@functools.cache
def generated(family: str, prompt: tuple[int, ...]) -> list[int]:
    """The oracle: transformers' own greedy ``generate`` with its own attention."""
    model = shared_mixture(family)
    model.set_attn_implementation("eager")
    ids = torch.tensor([prompt])
    config = GenerationConfig(max_new_tokens=24, do_sample=False, pad_token_id=0)
    output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return output[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_batch_equals_generate(family: str) -> None:
    def fuse(model: Any, hook: AttentionHook) -> None:
        attention = list(zip(hook.modules, hook.layers, strict=True))
        assert fuse_for_cpu(KERNELS, model, attention, Format.FLOAT32)["experts"] == 2

    given = prompts(1)
    expected = [generated(family, tuple(prompt)) for prompt in given]
    model = copy.deepcopy(shared_mixture(family))
    engine = build_engine(family, model=model, backend="cpu", prepare=fuse)
    outputs = run(engine, [request(str(i), prompt, 24) for i, prompt in enumerate(given)])
    assert [token_ids(outputs[str(i)]) for i in range(len(given))] == expected
    assert engine.stats().num_cached_tokens > 0
