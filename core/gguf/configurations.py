"""The configuration of each architecture, as ``config.json`` would say it, from a file's keys.

Sources: transformers' configurations; the keys that llama.cpp reads for an architecture.
"""

from __future__ import annotations

from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf.facts import Facts, longrope, longrope_scale


def plain(facts: Facts) -> dict[str, Any]:
    """A decoder with RoPE and nothing else."""
    return facts.decoder() | {
        "head_dim": facts.head_dim,
        "rope_parameters": facts.whole_rope(),
        "attention_bias": facts.has_tensor("blk.0.attn_q.bias"),
        "mlp_bias": facts.has_tensor("blk.0.ffn_up.bias"),
    }


def llama(facts: Facts) -> dict[str, Any]:
    config = plain(facts)
    window = facts.integer("attention.sliding_window", 0)
    return config | {"model_type": "mistral", "sliding_window": window} if window else config


def _experts(facts: Facts, key: str) -> dict[str, Any]:
    """The numbers of experts: all, which a configuration has as ``key``, and those of a token."""
    return {
        key: facts.integer("expert_count", least=1),
        "num_experts_per_tok": facts.integer("expert_used_count", least=1),
    }


def mixtral(facts: Facts) -> dict[str, Any]:
    return (
        facts.decoder()
        | {"head_dim": facts.head_dim, "rope_parameters": facts.whole_rope()}
        | _experts(facts, "num_local_experts")
        | {"sliding_window": facts.integer("attention.sliding_window", 0) or None}
    )


def qwen2(facts: Facts) -> dict[str, Any]:
    if facts.head_dim * facts.num_heads != facts.hidden_size:
        raise ModelLoadError(f"heads of {facts.head_dim} are not supported in this architecture")
    return facts.decoder() | {"rope_parameters": facts.whole_rope()}


def _mixture(facts: Facts) -> dict[str, Any]:
    inner = facts.tensor("blk.0.ffn_down_exps.weight").shape[-1]
    return _experts(facts, "num_experts") | {
        "moe_intermediate_size": facts.integer("expert_feed_forward_length", inner, least=1),
        # files of experts alone need not say the width of dense blocks
        "intermediate_size": facts.integer("feed_forward_length", inner),
    }


def qwen2moe(facts: Facts) -> dict[str, Any]:
    shared = facts.tensor("blk.0.ffn_up_shexp.weight").shape[0]
    return (
        qwen2(facts)
        | _mixture(facts)
        | {
            "shared_expert_intermediate_size": facts.integer(
                "expert_shared_feed_forward_length", shared, least=1
            )
        }
    )


def qwen3moe(facts: Facts) -> dict[str, Any]:
    return plain(facts) | _mixture(facts) | {"norm_topk_prob": True}


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


def _layer_types(facts: Facts, every: int) -> list[str]:
    """All layers have a window but each ``every``-th, if the file says nothing else."""
    return [
        "sliding_attention" if has_window else "full_attention"
        for has_window in facts.has_windows(every)
    ]


def gemma2(facts: Facts) -> dict[str, Any]:
    return (
        plain(facts)
        | _softcaps(facts, 50.0, 30.0)
        | {
            "query_pre_attn_scalar": _query_scalar(facts, 46),
            "sliding_window": facts.integer("attention.sliding_window", 4096, least=1),
            "layer_types": _layer_types(facts, 2),
        }
    )


def gemma3(facts: Facts) -> dict[str, Any]:
    window = facts.integer("attention.sliding_window", 0)
    local = {
        "rope_type": "default",
        "rope_theta": facts.number("rope.freq_base_swa", 10000.0),
    }
    return (
        plain(facts)
        | _softcaps(facts, 0.0, 0.0)
        | {
            "query_pre_attn_scalar": _query_scalar(facts, 62),
            "sliding_window": window or None,
            "layer_types": _layer_types(facts, 6 if window else 1),
            "rope_parameters": {"full_attention": facts.whole_rope(), "sliding_attention": local},
        }
    )


def phi3(facts: Facts) -> dict[str, Any]:
    config = facts.decoder()
    rotated = facts.integer("rope.dimension_count", facts.head_dim, least=1, most=facts.head_dim)
    length = facts.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"], least=2
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


def granite(facts: Facts) -> dict[str, Any]:
    if not facts.flag("rope.scaling.finetuned", default=True):  # llama.cpp's switch of this RoPE
        raise ModelLoadError("granites without RoPE are not supported")
    scale = facts.number("attention.scale", 0.0) or facts.head_dim**-0.5
    return plain(facts) | {
        "attention_multiplier": scale,
        "embedding_multiplier": facts.number("embedding_scale", 0.0) or 1.0,
        "residual_multiplier": facts.number("residual_scale", 0.0) or 1.0,
        "logits_scaling": facts.number("logit_scale"),
    }


def granitemoe(facts: Facts) -> dict[str, Any]:
    return granite(facts) | _experts(facts, "num_local_experts")


def olmoe(facts: Facts) -> dict[str, Any]:
    clip = facts.number("attention.clamp_kqv", 0.0) or None
    return plain(facts) | _experts(facts, "num_experts") | {"clip_qkv": clip}


def _windowed(facts: Facts, every: int) -> dict[str, Any]:
    """The window and which layers have it; without the key none has one."""
    window = facts.integer("attention.sliding_window", 0)
    return {
        "sliding_window": window or None,
        "layer_types": _layer_types(facts, every if window else 1),
    }


def olmo2(facts: Facts) -> dict[str, Any]:
    """Olmo 3 if there are windows; their layers have RoPE without scaling."""
    windows, values = _windowed(facts, 4), plain(facts)
    if windows["sliding_window"] is None:
        return values
    base = facts.number("rope.freq_base_swa", facts.rope_base)
    local = {"rope_type": "default", "rope_theta": base}
    ropes = {"full_attention": values["rope_parameters"], "sliding_attention": local}
    return values | windows | {"model_type": "olmo3", "rope_parameters": ropes}


def exaone4(facts: Facts) -> dict[str, Any]:
    if facts.number("rope.freq_base_swa", facts.rope_base) != facts.rope_base:
        raise ModelLoadError("RoPE of another base in layers with a window is not supported")
    return plain(facts) | _windowed(facts, 4)


def cohere2(facts: Facts) -> dict[str, Any]:
    return (
        facts.sizes()
        | _windowed(facts, 4)
        | {
            "head_dim": facts.head_dim,
            "layer_norm_eps": facts.number("attention.layer_norm_epsilon"),
            "logit_scale": facts.number("logit_scale"),
            "rope_parameters": facts.whole_rope(),
        }
    )


def glm4(facts: Facts) -> dict[str, Any]:
    rope = facts.part_rope()
    return facts.decoder() | {"head_dim": facts.head_dim, "rope_parameters": rope}


def nemotron(facts: Facts) -> dict[str, Any]:
    return facts.sizes() | {
        "head_dim": facts.head_dim,
        "norm_eps": facts.number("attention.layer_norm_epsilon"),
        "rope_parameters": facts.part_rope(),
    }


def starcoder2(facts: Facts) -> dict[str, Any]:
    return facts.sizes() | {
        "norm_epsilon": facts.number("attention.layer_norm_epsilon"),
        "rope_parameters": facts.whole_rope(),
    }


def gpt_oss(facts: Facts) -> dict[str, Any]:
    """Experts have the slope and the limit that the row has where no key says so."""
    inner = facts.integer("expert_feed_forward_length", least=1)
    rope = facts.whole_rope()
    if rope["rope_type"] == "yarn":
        rope["truncate"] = False
    values = facts.decoder() | _windowed(facts, 2) | _experts(facts, "num_local_experts")
    sizes = {"head_dim": facts.head_dim, "intermediate_size": inner}
    return values | sizes | {"rope_parameters": rope}


def gpt2(facts: Facts) -> dict[str, Any]:
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
