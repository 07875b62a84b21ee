"""Configurations other than a family's default."""

from __future__ import annotations

from typing import Any

_BASE = {"rope_theta": 10000.0}

_ROPE: dict[str, dict[str, Any]] = {
    "linear": {**_BASE, "rope_type": "linear", "factor": 4.0},
    "dynamic": {**_BASE, "rope_type": "dynamic", "factor": 4.0},
    "yarn": {
        **_BASE,
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "llama3": {
        **_BASE,
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

_WINDOWED: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 16},
    "mixtral": {"sliding_window": 16},
    "moshi": {"sliding_window": 300},
    "phi3": {"sliding_window": 16},
    "phimoe": {"sliding_window": 16},
    "qwen2": {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
    "qwen2_moe": {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3_moe": {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1},
    "starcoder2": {"sliding_window": 16},
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{family}/rope-{kind}": (family, {"rope_parameters": rope})
        for kind, rope in _ROPE.items()
        for family in ("llama", "qwen2", "qwen3")
    },
    **{f"{family}/window": (family, fields) for family, fields in _WINDOWED.items()},
    **{
        f"{family}/{'tied' if is_tied else 'untied'}": (family, {"tie_word_embeddings": is_tied})
        for family in ("gemma3_text", "gpt2", "llama", "opt", "qwen3")
        for is_tied in (True, False)
    },
    "falcon/alibi": ("falcon", {"alibi": True}),
    "gemma3_text/windows-only": (
        "gemma3_text",
        {"layer_types": ["sliding_attention"] * 2, "num_hidden_layers": 2},
    ),
    "gpt2/scaled": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox/sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "llama/biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama/one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "phi/partial": ("phi", {"rope_parameters": {**_BASE, "rope_type": "default"}}),
    "stablelm/parallel": ("stablelm", {"use_parallel_residual": True, "qk_layernorm": True}),
}
"""By name: the family, and the fields that differ from ``tiny_config``'s."""
