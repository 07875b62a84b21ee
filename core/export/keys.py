"""The metadata of a model's architecture, as core.gguf.configurations reads it.

Source: llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from core.contract.errors import ModelLoadError
from core.export.writer import Writable
from core.gguf.facts import YARN_KEYS, longrope_scale
from core.gguf.module_names import MIXTRAL, MODULES, ModuleNames

Keys: TypeAlias = dict[str, Writable]
"""Metadata without the prefix of the architecture."""

Factors: TypeAlias = dict[str, np.ndarray]
"""RoPE's factors, one for each pair of rotated dimensions, by the name of their tensor; float32."""

Describe: TypeAlias = Callable[[Any], tuple[Keys, Factors]]


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A configuration as a file holds it: architecture, metadata, and tensors for RoPE."""

    architecture: str
    names: ModuleNames
    keys: Keys
    factors: Factors = field(default_factory=dict)

    @property
    def metadata(self) -> Keys:
        """The keys with the prefix of the architecture."""
        return {f"{self.architecture}.{key}": value for key, value in self.keys.items()}


def describe_config(config: Any) -> DescribedConfig:
    """Describe a configuration of transformers. Raises ModelLoadError if no file can hold it.

    What the keys do not say is not looked at: compare what a reader makes of them.
    """
    found = _DESCRIBED.get(config.model_type)
    if found is None:
        raise ModelLoadError(
            f"models of type {config.model_type!r} cannot be written as GGUF files; "
            f"{', '.join(sorted(_DESCRIBED))} can"
        )
    architecture, describe = found
    names = MIXTRAL if config.model_type == "mixtral" else MODULES[architecture]
    keys, factors = describe(config)
    return DescribedConfig(architecture, names, keys, factors)


def _decoder(config: Any) -> Keys:
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }


def _heads(head_dim: int) -> Keys:
    return {"attention.key_length": head_dim, "attention.value_length": head_dim}


def _rope(rope: dict[str, Any], rotated: int) -> tuple[Keys, Factors]:
    """The keys of ``rope_parameters`` for ``rotated`` dimensions of a head."""
    keys: Keys = {"rope.freq_base": float(rope["rope_theta"])}
    match rope["rope_type"]:
        case "default":
            return keys, {}
        case "linear":
            keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
            return keys, {}
        case "yarn":
            return keys | _yarn(rope), {}
        case "llama3":
            return keys, {"rope_freqs.weight": _llama3_factors(rope, rotated)}
    raise ModelLoadError(f"RoPE of type {rope['rope_type']!r} cannot be written as a GGUF file")


def _yarn(rope: dict[str, Any]) -> Keys:
    keys: Keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
    }
    given = {key: rope.get(name) for name, key in YARN_KEYS.items()}
    return keys | {key: float(value) for key, value in given.items() if value is not None}


def _llama3_factors(rope: dict[str, Any], rotated: int) -> np.ndarray:
    """The divisors of RoPE's frequencies in Llama 3's scaling: ``[rotated // 2]``, float32.

    High frequencies stay (1), low ones are divided by ``factor``, and those between become a
    weighted mean of the two.
    """
    exponents = torch.arange(0, rotated, 2, dtype=torch.float64) / rotated
    turns = rope["original_max_position_embeddings"] / (
        2 * torch.pi * float(rope["rope_theta"]) ** exponents
    )  # of a frequency within the original context
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    share = ((turns - low) / (high - low)).clamp(0, 1)
    factors: np.ndarray = (1 / ((1 - share) / float(rope["factor"]) + share)).float().numpy()
    return factors


def _llama(config: Any) -> tuple[Keys, Factors]:
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    rope, factors = _rope(config.rope_parameters, head_dim)
    keys = _decoder(config) | rope | {"rope.dimension_count": head_dim} | _heads(head_dim)
    if config.model_type in ("mistral", "mixtral") and config.sliding_window:
        keys["attention.sliding_window"] = config.sliding_window
    if config.model_type == "mixtral":
        keys["expert_count"] = config.num_local_experts
        keys["expert_used_count"] = config.num_experts_per_tok
    return keys, factors


def _qwen2(config: Any) -> tuple[Keys, Factors]:
    rope, factors = _rope(config.rope_parameters, config.hidden_size // config.num_attention_heads)
    return _decoder(config) | rope, factors


def _qwen3(config: Any) -> tuple[Keys, Factors]:
    rope, factors = _rope(config.rope_parameters, config.head_dim)
    return _decoder(config) | _heads(config.head_dim) | rope, factors


def _experts(config: Any) -> Keys:
    return {
        "expert_count": config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
    }


def _qwen2moe(config: Any) -> tuple[Keys, Factors]:
    keys, factors = _qwen2(config)
    width = config.shared_expert_intermediate_size
    return keys | _experts(config) | {"expert_shared_feed_forward_length": width}, factors


def _qwen3moe(config: Any) -> tuple[Keys, Factors]:
    keys, factors = _qwen3(config)
    return keys | _experts(config), factors


def _gemma2(config: Any) -> tuple[Keys, Factors]:
    keys, factors = _qwen3(config)
    return keys | {
        "attn_logit_softcapping": float(config.attn_logit_softcapping or 0),
        "final_logit_softcapping": float(config.final_logit_softcapping or 0),
        "attention.sliding_window": config.sliding_window,
    }, factors


def _gemma3(config: Any) -> tuple[Keys, Factors]:
    ropes = config.rope_parameters
    rope, factors = _rope(ropes["full_attention"], config.head_dim)
    keys = _decoder(config) | _heads(config.head_dim) | rope
    keys["rope.freq_base_swa"] = float(ropes["sliding_attention"]["rope_theta"])
    if config.sliding_window:
        keys["attention.sliding_window"] = config.sliding_window
    if config.final_logit_softcapping:
        keys["final_logit_softcapping"] = float(config.final_logit_softcapping)
    return keys, factors


def _phi3(config: Any) -> tuple[Keys, Factors]:
    rope = config.rope_parameters
    head_dim = config.hidden_size // config.num_attention_heads
    rotated = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    length = config.original_max_position_embeddings
    keys = _decoder(config) | {
        "rope.dimension_count": rotated,
        "rope.scaling.original_context_length": length,
        "attention.sliding_window": config.sliding_window or 0,
    }
    if rope["rope_type"] != "longrope":
        own, factors = _rope(rope, rotated)
        return keys | own, factors
    keys["rope.freq_base"] = float(rope["rope_theta"])
    factor = rope.get("attention_factor") or longrope_scale(keys["context_length"], length)
    keys["rope.scaling.attn_factor"] = float(factor)
    return keys, {
        f"rope_factors_{name}.weight": np.array(rope[f"{name}_factor"], np.float32)
        for name in ("long", "short")
    }


def _gpt2(config: Any) -> tuple[Keys, Factors]:
    return {
        "context_length": config.n_positions,
        "embedding_length": config.n_embd,
        "block_count": config.n_layer,
        "feed_forward_length": config.n_inner or 4 * config.n_embd,
        "attention.head_count": config.n_head,
        "attention.layer_norm_epsilon": float(config.layer_norm_epsilon),
    }, {}


_DESCRIBED: dict[str, tuple[str, Describe]] = {
    "llama": ("llama", _llama),
    "mistral": ("llama", _llama),
    "mixtral": ("llama", _llama),
    "qwen2": ("qwen2", _qwen2),
    "qwen2_moe": ("qwen2moe", _qwen2moe),
    "qwen3": ("qwen3", _qwen3),
    "qwen3_moe": ("qwen3moe", _qwen3moe),
    "gemma": ("gemma", _qwen3),
    "gemma2": ("gemma2", _gemma2),
    "gemma3_text": ("gemma3", _gemma3),
    "phi3": ("phi3", _phi3),
    "gpt2": ("gpt2", _gpt2),
}
"""The architecture of a file, and what makes its keys, by transformers' type of a model."""
