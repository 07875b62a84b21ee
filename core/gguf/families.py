"""The architectures that can be served: their configuration, and the names of their tensors.

Sources: transformers' configurations and modules; the tensors and keys that llama.cpp reads for an
architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf.facts import HARMLESS, Facts, longrope, longrope_scale
from core.gguf.file import GgufFile

Config = Callable[[Facts], dict[str, Any]]
"""Makes the arguments of a configuration class; ``model_type`` may be among them."""

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

_ATTENTION = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_MLP = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_EXPERTS = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_up_proj",
    "ffn_up_exps": "mlp.experts.gate_up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_GEMMA_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""In place of a family's defaults: the tokenizer and the generation config know them."""


@dataclass(frozen=True, slots=True)
class Family:
    """An architecture. Names are those of modules, without ``.weight`` and ``.bias``."""

    model_type: str
    config: Config
    layer: Mapping[str, str]
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)
    layers: str = "model.layers"
    permutes_heads: bool = False
    """Whether rows of queries and keys alternate between the halves of a head."""
    norm_offset: float = 0.0
    """What the file adds to the weights of norms."""
    is_transposed: bool = False
    """Whether the model stores its matrices by column, as Conv1D does."""


def family_of(file: GgufFile) -> tuple[Family, dict[str, Any]]:
    """Return a file's family and the arguments of its configuration. Raises ModelLoadError."""
    architecture = file.metadata.text("general.architecture")
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelLoadError(
            f"its architecture {architecture!r} is not supported; {', '.join(sorted(FAMILIES))} are"
        )
    facts = Facts(file, architecture)
    if architecture == "llama" and facts.integer("expert_count", 0):
        family = MIXTRAL
    config = family.config(facts) | _NO_TOKENS
    facts.check_all_used()
    file.metadata.check_all_read(facts.prefix, HARMLESS)
    return family, config


def _llama(facts: Facts) -> dict[str, Any]:
    config = facts.decoder()
    config |= {
        "head_dim": facts.head_dim,
        "rope_parameters": facts.whole_rope(),
        "attention_bias": facts.has_tensor("blk.0.attn_q.bias"),
        "mlp_bias": facts.has_tensor("blk.0.ffn_up.bias"),
    }
    window = facts.integer("attention.sliding_window", 0)
    return config | {"model_type": "mistral", "sliding_window": window} if window else config


def _mixtral(facts: Facts) -> dict[str, Any]:
    return facts.decoder() | {
        "head_dim": facts.head_dim,
        "rope_parameters": facts.whole_rope(),
        "num_local_experts": facts.integer("expert_count", least=1),
        "num_experts_per_tok": facts.integer("expert_used_count", least=1),
        "sliding_window": facts.integer("attention.sliding_window", 0) or None,
    }


def _qwen2(facts: Facts) -> dict[str, Any]:
    if facts.head_dim * facts.num_heads != facts.hidden_size:
        raise ModelLoadError(f"heads of {facts.head_dim} are not supported in this architecture")
    return facts.decoder() | {"rope_parameters": facts.whole_rope()}


def _qwen3(facts: Facts) -> dict[str, Any]:
    return facts.decoder() | {
        "head_dim": facts.head_dim,
        "rope_parameters": facts.whole_rope(),
        "attention_bias": facts.has_tensor("blk.0.attn_q.bias"),
    }


def _mixture(facts: Facts) -> dict[str, Any]:
    inner = facts.tensor("blk.0.ffn_down_exps.weight").shape[-1]
    return {
        "num_experts": facts.integer("expert_count", least=1),
        "num_experts_per_tok": facts.integer("expert_used_count", least=1),
        "moe_intermediate_size": facts.integer("expert_feed_forward_length", inner, least=1),
        # files of experts alone need not say the width of dense blocks
        "intermediate_size": facts.integer("feed_forward_length", inner),
    }


def _qwen2moe(facts: Facts) -> dict[str, Any]:
    shared = facts.tensor("blk.0.ffn_up_shexp.weight").shape[0]
    return (
        _qwen2(facts)
        | _mixture(facts)
        | {
            "shared_expert_intermediate_size": facts.integer(
                "expert_shared_feed_forward_length", shared, least=1
            )
        }
    )


def _qwen3moe(facts: Facts) -> dict[str, Any]:
    return _qwen3(facts) | _mixture(facts) | {"norm_topk_prob": True}


def _gemma(facts: Facts) -> dict[str, Any]:
    return facts.decoder() | {"head_dim": facts.head_dim, "rope_parameters": facts.whole_rope()}


def _softcaps(facts: Facts, attention: float, final: float) -> dict[str, Any]:
    """The caps of scores and logits, with defaults; 0 means none."""
    return {
        "attn_logit_softcapping": facts.number("attn_logit_softcapping", attention) or None,
        "final_logit_softcapping": facts.number("final_logit_softcapping", final) or None,
    }


def _query_scalar(facts: Facts, layers_of_27b: int) -> int:
    """The square of the divisor of scores: the width of a head, but for the largest models."""
    if facts.num_layers == layers_of_27b:
        return facts.hidden_size // facts.num_heads
    return facts.head_dim


def _layer_types(facts: Facts, pattern: int) -> list[str]:
    """Every ``pattern``-th layer has full attention, the others a window."""
    pattern = facts.integer("attention.sliding_window_pattern", pattern, least=1)
    return [
        "sliding_attention" if (i + 1) % pattern else "full_attention"
        for i in range(facts.num_layers)
    ]


def _gemma2(facts: Facts) -> dict[str, Any]:
    return (
        _gemma(facts)
        | _softcaps(facts, 50.0, 30.0)
        | {
            "query_pre_attn_scalar": _query_scalar(facts, 46),
            "sliding_window": facts.integer("attention.sliding_window", 4096, least=1),
            "layer_types": _layer_types(facts, 2),
        }
    )


def _gemma3(facts: Facts) -> dict[str, Any]:
    window = facts.integer("attention.sliding_window", 0)
    local = {
        "rope_type": "default",
        "rope_theta": facts.number("rope.freq_base_swa", 10000.0),
    }
    return (
        _gemma(facts)
        | _softcaps(facts, 0.0, 0.0)
        | {
            "query_pre_attn_scalar": _query_scalar(facts, 62),
            "sliding_window": window or None,
            "layer_types": _layer_types(facts, 6 if window else 1),
            "rope_parameters": {"full_attention": facts.whole_rope(), "sliding_attention": local},
        }
    )


def _phi3(facts: Facts) -> dict[str, Any]:
    config = facts.decoder()
    rotated = facts.integer("rope.dimension_count", facts.head_dim, least=1, most=facts.head_dim)
    length = facts.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    if facts.has_tensor("rope_factors_long.weight"):
        rope = longrope(
            facts.rope_base,
            facts.factors("rope_factors_short.weight", rotated),
            facts.factors("rope_factors_long.weight", rotated),
            length,
            facts.number(
                "rope.scaling.attn_factor",
                longrope_scale(config["max_position_embeddings"], length),
            ),
        )
        facts.text("rope.scaling.type", "longrope")
    else:
        rope = facts.rope(rotated)
    return config | {
        "rope_parameters": rope | {"partial_rotary_factor": rotated / facts.head_dim},
        "original_max_position_embeddings": length,
        "sliding_window": facts.integer("attention.sliding_window", 0) or None,
        "resid_pdrop": 0.0,
    }


def _gpt2(facts: Facts) -> dict[str, Any]:
    return {
        "vocab_size": facts.tensor("token_embd.weight").shape[0],
        "n_embd": facts.hidden_size,
        "n_layer": facts.num_layers,
        "n_head": facts.num_heads,
        "n_positions": facts.integer("context_length", least=1, most=1 << 20),
        "n_inner": facts.integer("feed_forward_length", least=1),
        "layer_norm_epsilon": facts.number("attention.layer_norm_epsilon"),
        "tie_word_embeddings": not facts.has_tensor("output.weight"),
    }


MIXTRAL = Family("mixtral", _mixtral, _ATTENTION | _EXPERTS, permutes_heads=True)
"""Llamas with experts, which share their architecture's name with those without."""

FAMILIES = {
    "llama": Family("llama", _llama, _ATTENTION | _MLP, permutes_heads=True),
    "qwen2": Family("qwen2", _qwen2, _ATTENTION | _MLP),
    "qwen2moe": Family("qwen2_moe", _qwen2moe, _ATTENTION | _EXPERTS | _SHARED_EXPERT),
    "qwen3": Family("qwen3", _qwen3, _ATTENTION | _HEAD_NORMS | _MLP),
    "qwen3moe": Family("qwen3_moe", _qwen3moe, _ATTENTION | _HEAD_NORMS | _EXPERTS),
    "gemma": Family("gemma", _gemma, _ATTENTION | _MLP, norm_offset=1.0),
    "gemma2": Family("gemma2", _gemma2, _ATTENTION | _MLP | _GEMMA_NORMS, norm_offset=1.0),
    "gemma3": Family(
        "gemma3_text", _gemma3, _ATTENTION | _HEAD_NORMS | _MLP | _GEMMA_NORMS, norm_offset=1.0
    ),
    "phi3": Family(
        "phi3",
        _phi3,
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
    ),
    "gpt2": Family(
        "gpt2",
        _gpt2,
        {
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        top={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layers="transformer.h",
        is_transposed=True,
    ),
}
"""The families by the name of their architecture in files."""
