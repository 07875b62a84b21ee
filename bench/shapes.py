"""The shapes of well-known models, for random models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _gpt2() -> Any:
    from transformers import GPT2Config  # noqa: PLC0415 - slow to import

    return GPT2Config(n_ctx=1024, architectures=["GPT2LMHeadModel"])


def _qwen3(*, vocab_size: int = 151_936, **shape: Any) -> Any:
    from transformers import Qwen3Config  # noqa: PLC0415 - slow to import

    return Qwen3Config(
        vocab_size=vocab_size,
        head_dim=128,
        num_key_value_heads=8,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        architectures=["Qwen3ForCausalLM"],
        **shape,
    )


def _qwen3_600m(**shape: Any) -> Any:
    return _qwen3(
        hidden_size=1024,
        intermediate_size=3072,
        num_attention_heads=16,
        tie_word_embeddings=True,
        **{"num_hidden_layers": 28, **shape},
    )


def _qwen3_seventh() -> Any:
    """A seventh of Qwen3-0.6B, for long contexts: of its layers, its vocabulary and its KV cache.

    Layers, output layer and cache have the same shares of a step as in the whole model.
    """
    return _qwen3_600m(num_hidden_layers=4, vocab_size=21_760)


def _qwen3_8b() -> Any:
    return _qwen3(
        hidden_size=4096,
        intermediate_size=12_288,
        num_hidden_layers=36,
        num_attention_heads=32,
        tie_word_embeddings=False,
    )


def _qwen3_moe() -> Any:
    """A small mixture: 0.91 billion parameters, of which a token uses 0.21 billion."""
    from transformers import Qwen3MoeConfig  # noqa: PLC0415 - slow to import

    return Qwen3MoeConfig(
        vocab_size=65_536,
        hidden_size=1024,
        intermediate_size=3072,
        moe_intermediate_size=512,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=64,
        num_experts=32,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        architectures=["Qwen3MoeForCausalLM"],
    )


def _llama(**shape: Any) -> Any:
    from transformers import LlamaConfig  # noqa: PLC0415 - slow to import

    return LlamaConfig(tie_word_embeddings=True, architectures=["LlamaForCausalLM"], **shape)


def _llama_1b() -> Any:
    return _llama(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )


def _tiny() -> Any:
    return _llama(
        vocab_size=4096,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
    )


_CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": _gpt2,
    "qwen3-0.6b": _qwen3_600m,
    "qwen3-0.6b-seventh": _qwen3_seventh,
    "llama-1b": _llama_1b,
    "qwen3-8b": _qwen3_8b,
    "qwen3-moe-0.9b-a0.2b": _qwen3_moe,
    "tiny": _tiny,
}

RANDOM_MODELS = tuple(_CONFIGS)
"""The names of the shapes."""


def random_model_config(name: str) -> Any:
    """Return the transformers configuration of a shape. Raises KeyError for an unknown name."""
    return _CONFIGS[name]()
