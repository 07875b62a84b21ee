"""Tiny mixtures with random weights, as transformers itself makes them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    MixtralConfig,
    OlmoeConfig,
    PretrainedConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

from tests.support.checkpoints import DECODER

MIXTURE = DECODER | {"num_hidden_layers": 2, "head_dim": 16, "num_experts_per_tok": 2}

MIXTURES: dict[str, Callable[..., PretrainedConfig]] = {
    "qwen3_moe": lambda **more: Qwen3MoeConfig(
        **MIXTURE | {"num_experts": 6, "moe_intermediate_size": 32, "norm_topk_prob": True} | more
    ),
    "qwen2_moe": lambda **more: Qwen2MoeConfig(
        **MIXTURE
        | {"num_experts": 6, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64}
        | more
    ),
    "mixtral": lambda **more: MixtralConfig(**MIXTURE | {"num_local_experts": 5} | more),
    "olmoe": lambda **more: OlmoeConfig(**MIXTURE | {"num_experts": 4, "head_dim": 8} | more),
    "gpt_oss": lambda **more: GptOssConfig(
        **MIXTURE | {"num_local_experts": 4, "sliding_window": 16} | more
    ),
}


def mixture(family: str, **more: Any) -> Any:
    """A new model with fixed random weights, wide enough that ties do not happen."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model: Any = AutoModelForCausalLM.from_config(MIXTURES[family](**more))
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith(("sinks", "bias")):
                torch.nn.init.normal_(parameter, std=0.15)
    return model.eval().requires_grad_(False)


shared_mixture = functools.cache(mixture)
"""The same, kept. It must not be changed."""
