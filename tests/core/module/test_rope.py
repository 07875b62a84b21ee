"""RoPE frequencies depend on the engine's context and never on the other sequences of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, PhimoeConfig

from core.assembly.build import assemble
from core.contract.config import EngineConfig
from core.module.facts import describe
from core.module.rope import fix_rope
from core.system import device_memory as memory
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import VOCAB_SIZE
from tests.support.tiny_engine import (
    build_engine,
    greedy,
    prompts,
    request,
    run,
    run_prompts,
    token_ids,
)
from tests.support.tokenizers import byte_level

ORIGINAL, CONTEXT = 64, 256
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [3.0, 5.0, 7.0, 9.0],
    "original_max_position_embeddings": ORIGINAL,
}
DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE, rope_parameters=dict(LONGROPE)),
    "phi3": lambda: Phi3Config(
        **SHAPE, rope_parameters=dict(LONGROPE), original_max_position_embeddings=ORIGINAL
    ),
    "phimoe": lambda: PhimoeConfig(
        **SHAPE,
        rope_parameters={**LONGROPE, "short_mscale": 1.1, "long_mscale": 1.4},
        num_local_experts=2,
        num_experts_per_tok=1,
    ),
    "dynamic": lambda: LlamaConfig(**SHAPE, rope_parameters=dict(DYNAMIC)),
}
KINDS = sorted(CONFIGS)
LONG, SHORT = 90, 20
NUM_NEW = 8


def model_of(kind: str) -> Any:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]())
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    return model.eval().requires_grad_(False)


def fixed(kind: str, max_model_len: int) -> Any:
    model = model_of(kind)
    fix_rope(model, max_model_len)
    return model


def served(model: Any, *given: list[int]) -> list[list[int]]:
    return run_prompts(build_engine("llama", model=model), list(given), NUM_NEW)


def long_and_short() -> tuple[list[int], list[int]]:
    long = prompts(1)[4][:LONG]
    return long, long[:SHORT]


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_sequence_equals_generate(kind: str) -> None:
    """It is beyond the original length from its first token on, so transformers agrees."""
    long, _ = long_and_short()
    assert served(fixed(kind, CONTEXT), long) == [greedy(model_of(kind), long, NUM_NEW)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_context_equals_generate(kind: str) -> None:
    _, short = long_and_short()
    assert served(fixed(kind, ORIGINAL), short) == [greedy(model_of(kind), short, NUM_NEW)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_and_a_cached_prefix_change_nothing(kind: str) -> None:
    long, short = long_and_short()
    alone = served(fixed(kind, CONTEXT), short) + served(fixed(kind, CONTEXT), long)
    assert served(fixed(kind, CONTEXT), short, long) == alone
    assert served(fixed(kind, CONTEXT), long, short) == alone[::-1]


def test_the_factors_follow_the_context() -> None:
    short, long = (fixed("llama", n).model.rotary_emb.inv_freq for n in (ORIGINAL, ORIGINAL + 1))
    ratio = torch.tensor(LONGROPE["short_factor"]) / torch.tensor(LONGROPE["long_factor"])
    torch.testing.assert_close(long / short, ratio)


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_memory_lowers_equals_generate(kind: str, monkeypatch: Any) -> None:
    """The context is known only after the cache is sized, when the frequencies have been fixed."""
    monkeypatch.setattr(memory, "MIN_LOWERED_CONTEXT", ORIGINAL // 2)
    model = model_of(kind)
    heads = SHAPE["num_key_value_heads"] * SHAPE["hidden_size"] // SHAPE["num_attention_heads"]
    config = EngineConfig(
        max_num_seqs=1, kv_cache_memory=ORIGINAL * SHAPE["num_hidden_layers"] * 2 * heads * 4
    )
    tokenizer = Tokenizer(byte_level(), vocab_size=VOCAB_SIZE)
    loaded = assemble(describe(model, torch.device("cpu")), tokenizer, config)
    assert loaded.info.max_model_len == ORIGINAL
    _, short = long_and_short()
    outputs = run(loaded.engine, [request("0", short, NUM_NEW)])
    assert token_ids(outputs["0"]) == greedy(model_of(kind), short, NUM_NEW)
