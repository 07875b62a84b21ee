"""Families whose attention caps its scores or has sinks: token for token what ``generate`` gives.

The prompts are longer than the windows and are computed in chunks, in one batch, on cached blocks.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GptOssConfig,
    GraniteMoeSWAConfig,
    GraniteSWAConfig,
    MiMoV2FlashConfig,
    PretrainedConfig,
    VaultGemmaConfig,
)

from core.attention.base import AttentionBackend, backend_factory
from core.contract.errors import ModelLoadError
from core.hook.hook import AttentionHook
from core.kernels.cpu.library import kernels
from core.kv.storage import KVStorage
from core.models.families import FAMILIES
from tests.support.checkpoints import DECODER
from tests.support.described import assembled, loaded
from tests.support.tiny_engine import assert_generated, build_engine, prompts, run_prompts

pytestmark = pytest.mark.slow

KINDS = ["sliding_attention", "full_attention"]
SMALL = DECODER | {"num_hidden_layers": 2, "head_dim": 16, "sliding_window": 16}
MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2}
CAP = {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 1, "tie_word_embeddings": False}
"""Scores far beyond the cap, and no tied embedding that makes every token follow itself."""

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "gemma2": lambda: Gemma2Config(**SMALL, **CAP, layer_types=KINDS),
    "vaultgemma": lambda: VaultGemmaConfig(**SMALL, **CAP, layer_types=KINDS),
    "gpt_oss": lambda: GptOssConfig(**SMALL, **MIXTURE, layer_types=KINDS),
    "granite_swa": lambda: GraniteSWAConfig(**SMALL, layer_types=KINDS),
    "granitemoe_swa": lambda: GraniteMoeSWAConfig(**SMALL, **MIXTURE, layer_types=KINDS),
    "mimo_v2_flash": lambda: MiMoV2FlashConfig(
        **SMALL | {"num_key_value_heads": 1},  # doubled in the layers with a window
        layer_types=KINDS,
        mlp_layer_types=["dense", "sparse"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        n_group=1,
        topk_group=1,
        v_head_dim=12,
    ),
}
CAPPED = {"gemma2", "vaultgemma"}


@functools.cache
def model_of(family: str) -> Any:
    """Random weights; sinks so large that they take a share of the softmax."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(CONFIGS[family]())
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith("sinks"):
                torch.nn.init.normal_(parameter, std=2.0 if name.endswith("sinks") else 0.15)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize(
    "backend",
    [
        "torch",
        pytest.param("cpu", marks=pytest.mark.skipif(kernels() is None, reason="no C++ compiler")),
    ],
)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_batch_equals_generate(family: str, backend: str) -> None:
    given = prompts(1)
    engine = build_engine(family, model=model_of(family), backend=backend)
    answers = run_prompts(engine, given, 24)
    assert_generated(model_of(family), given, answers)
    assert engine.stats().num_cached_tokens > 0


@pytest.mark.skipif(kernels() is None, reason="no C++ compiler")
@pytest.mark.parametrize("family", sorted(CONFIGS.keys() & FAMILIES.keys()))
def test_rows_keep_the_tokens(family: str, tmp_path: Path) -> None:
    given = prompts(1)
    model_of(family).save_pretrained(tmp_path)
    answers = run_prompts(assembled(loaded(tmp_path)).engine, given, 24)
    assert_generated(model_of(family), given, answers)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_what_the_test_is_about_changes_the_tokens(family: str) -> None:
    """Without the cap or the sinks other tokens come out."""

    def without(storage: KVStorage, layers: Any) -> AttentionBackend:
        assert any(layer.softcap is not None for layer in layers) == (family in CAPPED)
        assert any(layer.sinks is not None for layer in layers) == (family not in CAPPED)
        plain = [replace(layer, softcap=None, sinks=None) for layer in layers]
        return backend_factory("torch")(storage, plain)

    given = prompts(1)
    engine = build_engine(family, model=model_of(family), backend=without)
    answers = run_prompts(engine, given, 24)
    with pytest.raises(AssertionError):
        assert_generated(model_of(family), given, answers)


def test_sinks_of_another_shape_are_refused() -> None:
    model = model_of("gpt_oss")
    attention = model.model.layers[0].self_attn
    sinks = attention.sinks
    attention.sinks = torch.nn.Parameter(torch.zeros(2 * len(sinks)), requires_grad=False)
    try:
        with pytest.raises(ModelLoadError, match="sinks are not one number per head"):
            AttentionHook(model)
    finally:
        attention.sinks = sinks
