"""Tiny random-weight models of the supported families, as transformers itself makes them."""

import functools
from collections.abc import Callable

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCAB_SIZE = 211
CONTEXT = 256

DECODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": None,  # nothing ends a generation early
    "pad_token_id": 0,
}

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_positions=CONTEXT,
        n_embd=48,
        n_layer=4,
        n_head=6,
        bos_token_id=1,
        eos_token_id=None,
    ),
    "llama": lambda: LlamaConfig(**DECODER),
    "qwen2": lambda: Qwen2Config(**DECODER),
    "qwen3": lambda: Qwen3Config(**DECODER, head_dim=16),
    "mistral": lambda: MistralConfig(**DECODER, sliding_window=24),
    "gemma3": lambda: Gemma3TextConfig(
        **DECODER,
        head_dim=16,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"] * 2,
    ),
}


@functools.cache
def tiny_model(family: str) -> torch.nn.Module:
    """A model of this family with fixed random weights, wide enough that ties do not happen."""
    return random_model(CONFIGS[family]())


def random_model(config: PretrainedConfig) -> torch.nn.Module:
    """A model with the random weights of ``tiny_model``."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.15)
    return model.eval().requires_grad_(False)
