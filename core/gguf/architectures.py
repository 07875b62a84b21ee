"""The table of architectures: which row of core.models reads their keys, and their tensors by role.

A file differs from a checkpoint in Hugging Face format in names and in two fields. Sources: the
tensors that llama.cpp reads for an architecture, and what its converter does to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.gguf import configurations as c
from core.gguf.facts import Facts
from core.models.names import Names


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture of files. ``values`` makes the content of its ``config.json``."""

    model_type: str  # where ``values`` names none
    values: Callable[[Facts], dict[str, Any]]
    names: Names
    permutes_heads: bool = False  # RoPE's pairs are neighbours, not halves, in queries and keys
    shifts_norms: bool = False  # the weights of norms have the family's offset added


LLAMA = Names(
    layer={
        "pre_mixer": "attn_norm.weight",
        "pre_feed_forward": "ffn_norm.weight",
        "qkv": "attn_[q,k,v].weight",
        "output": "attn_output.weight",
        "query_norm": "attn_q_norm.weight",
        "key_norm": "attn_k_norm.weight",
        "sinks": "attn_sinks.weight",
        "up": "ffn_[gate,up].weight",
        "down": "ffn_down.weight",
        "router": "ffn_gate_inp.weight",
        "experts_up": "ffn_[gate,up]_exps.weight",
        "experts_down": "ffn_down_exps.weight",
        "shared_up": "ffn_[gate,up]_shexp.weight",
        "shared_down": "ffn_down_shexp.weight",
        "shared_gate": "ffn_gate_inp_shexp.weight",
    },
    top={
        "embedding": "token_embd.weight",
        "positions": "position_embd.weight",
        "final_norm": "output_norm.weight",
        "head": "output.weight",
    },
    layers="blk.{i}.",
    ignored=(),
)
"""Most architectures have these."""

JOINT = LLAMA.renamed(qkv="attn_qkv.weight", up="ffn_up.weight")
POST_NORMS = LLAMA.renamed(
    post_mixer="post_attention_norm.weight", post_feed_forward="post_ffw_norm.weight"
)

UNGATED = LLAMA.renamed(up="ffn_up.weight")
OTHER_PRE_NORM = LLAMA.renamed(pre_feed_forward="post_attention_norm.weight")

MIXTRAL = Architecture("mixtral", c.mixtral, LLAMA, permutes_heads=True)
"""Llamas with experts, which share their architecture's name with those without."""

ARCHITECTURES = {
    "arcee": Architecture("arcee", c.plain, UNGATED, permutes_heads=True),
    "cohere2": Architecture("cohere2", c.cohere2, LLAMA),
    "ernie4_5": Architecture("ernie4_5", c.plain, LLAMA),
    "exaone4": Architecture("exaone4", c.exaone4, POST_NORMS),
    "gemma": Architecture("gemma", c.plain, LLAMA, shifts_norms=True),
    "gemma2": Architecture("gemma2", c.gemma2, POST_NORMS, shifts_norms=True),
    "gemma3": Architecture("gemma3_text", c.gemma3, POST_NORMS, shifts_norms=True),
    "glm4": Architecture("glm4", c.glm4, POST_NORMS.renamed(up="ffn_up.weight")),
    "gpt-oss": Architecture("gpt_oss", c.gpt_oss, OTHER_PRE_NORM),
    "gpt2": Architecture("gpt2", c.gpt2, JOINT),
    "granite": Architecture("granite", c.granite, LLAMA, permutes_heads=True),
    "granitemoe": Architecture("granitemoe", c.granitemoe, LLAMA, permutes_heads=True),
    "llama": Architecture("llama", c.llama, LLAMA, permutes_heads=True),
    "nemotron": Architecture("nemotron", c.nemotron, UNGATED, shifts_norms=True),
    "olmo2": Architecture("olmo2", c.olmo2, POST_NORMS),
    "olmoe": Architecture("olmoe", c.olmoe, LLAMA),
    "phi3": Architecture("phi3", c.phi3, JOINT),
    "qwen2": Architecture("qwen2", c.qwen2, LLAMA),
    "qwen2moe": Architecture("qwen2_moe", c.qwen2moe, LLAMA),
    "qwen3": Architecture("qwen3", c.plain, LLAMA),
    "qwen3moe": Architecture("qwen3_moe", c.qwen3moe, LLAMA),
    "seed_oss": Architecture("seed_oss", c.plain, OTHER_PRE_NORM),
    "smollm3": Architecture("smollm3", c.plain, LLAMA, permutes_heads=True),
    "starcoder2": Architecture("starcoder2", c.starcoder2, UNGATED),
}
"""By the name that files have for them."""
