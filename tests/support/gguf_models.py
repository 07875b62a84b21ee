"""Tiny models of every architecture of GGUF files, and their metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from core.gguf.blocks import Q8_0
from tests.support.gguf_blocks import q8_0
from tests.support.gguf_files import Raw, byte_vocabulary, tensors_of, write_gguf

SIZE = 64
CONTEXT = 256

_DECODER = {
    "vocab_size": 300,
    "hidden_size": SIZE,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": None,
}
_KEYS = {
    "context_length": CONTEXT,
    "embedding_length": SIZE,
    "block_count": 3,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
_HEADS = {"attention.key_length": 32, "attention.value_length": 32}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_EXPERT_KEYS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
_WINDOWS = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16}
_FACTORS = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0] * 8}

Keys = dict[str, Any]

MODELS: dict[str, tuple[Callable[[], PretrainedConfig], Keys]] = {
    "llama": (lambda: LlamaConfig(**_DECODER), _KEYS | {"rope.dimension_count": 16}),
    "qwen2": (
        lambda: Qwen2Config(
            **_DECODER,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 5e5,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        _KEYS
        | {
            "rope.freq_base": 5e5,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
    ),
    "qwen2moe": (
        lambda: Qwen2MoeConfig(**_DECODER, **_EXPERTS, shared_expert_intermediate_size=48),
        _KEYS | _EXPERT_KEYS | {"expert_shared_feed_forward_length": 48},
    ),
    "qwen3": (
        lambda: Qwen3Config(**_DECODER, head_dim=32, tie_word_embeddings=True),
        _KEYS | _HEADS,
    ),
    "qwen3moe": (
        lambda: Qwen3MoeConfig(**_DECODER, **_EXPERTS, head_dim=32, norm_topk_prob=True),
        _KEYS | _HEADS | _EXPERT_KEYS,
    ),
    "mixtral": (
        lambda: MixtralConfig(**_DECODER, num_local_experts=4, num_experts_per_tok=2),
        _KEYS | {"expert_count": 4, "expert_used_count": 2, "rope.freq_base": 1e6},
    ),
    "gemma": (lambda: GemmaConfig(**_DECODER, head_dim=32), _KEYS | _HEADS),
    "gemma2": (
        lambda: Gemma2Config(**_DECODER, **_WINDOWS),
        _KEYS
        | _HEADS
        | {
            "attention.sliding_window": 16,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": (
        lambda: Gemma3TextConfig(**_DECODER | {"num_hidden_layers": 7}, **_WINDOWS),
        _KEYS | _HEADS | {"block_count": 7, "attention.sliding_window": 16, "rope.freq_base": 1e6},
    ),
    "phi3": (
        lambda: Phi3Config(
            **_DECODER,
            sliding_window=None,
            original_max_position_embeddings=64,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "factor": CONTEXT / 64,
                "original_max_position_embeddings": 64,
                **_FACTORS,
            },
        ),
        _KEYS | {"rope.scaling.original_context_length": 64, "rope.dimension_count": 16},
    ),
    "gpt2": (
        lambda: GPT2Config(
            vocab_size=300,
            n_positions=CONTEXT,
            n_embd=SIZE,
            n_layer=3,
            n_head=4,
            n_inner=96,
            bos_token_id=1,
            eos_token_id=None,
        ),
        {
            "context_length": CONTEXT,
            "embedding_length": SIZE,
            "block_count": 3,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.layer_norm_epsilon": 1e-5,
        },
    ),
}
"""Configuration, and keys without the architecture's prefix, by family."""


def architecture_of(family: str) -> str:
    """Files call a Mixtral a llama with experts."""
    return "llama" if family == "mixtral" else family


@functools.cache
def tiny_model(family: str, **changes: Any) -> torch.nn.Module:
    """A family's random model; ``changes`` are fields of its configuration."""
    config = MODELS[family][0]()
    for name, value in changes.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter.data += torch.randn_like(parameter) * (0.1 if parameter.dim() > 1 else 0.2)
    return model.eval().requires_grad_(False)


def values_of_file(family: str, **changes: Any) -> dict[str, Any]:
    """The metadata of a family's tiny model; ``changes`` of None leave a key out."""
    architecture = architecture_of(family)
    keys = {f"{architecture}.{key}": value for key, value in MODELS[family][1].items()}
    values = {"general.architecture": architecture, **keys, **byte_vocabulary(300)}
    return {key: value for key, value in (values | changes).items() if value is not None}


def tensors_of_file(family: str) -> dict[str, Raw]:
    tensors = tensors_of(tiny_model(family), family)
    if family == "phi3":
        for name, key in (("short", "short_factor"), ("long", "long_factor")):
            factors = Raw.of(torch.tensor(_FACTORS[key]))
            tensors[f"rope_factors_{name}.weight"] = factors
    return tensors


def write_tiny(path: Path, family: str, **changes: Any) -> Path:
    """Write a family's tiny model in F32."""
    return write_gguf(path, values_of_file(family, **changes), tensors_of_file(family))


def in_blocks(tensors: dict[str, Raw]) -> dict[str, Raw]:
    """The tensors with every matrix in Q8_0 whose rows divide into blocks."""

    def stored(raw: Raw) -> Raw:
        if len(raw.shape) < 2 or raw.shape[-1] % 32:
            return raw
        rows = q8_0(np.frombuffer(raw.data, np.float32).reshape(-1, raw.shape[-1]))
        return Raw(raw.shape, Q8_0, rows.data.tobytes())

    return {name: stored(raw) for name, raw in tensors.items()}
