"""The table of architectures: which row of core.models reads their keys, and their tensors by role.

A file differs from a checkpoint in Hugging Face format in names and in two fields. Sources: the
tensors that llama.cpp reads for an architecture, and what its converter does to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.gguf import configurations
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

MIXTRAL = Architecture("mixtral", configurations.mixtral, LLAMA, permutes_heads=True)
"""Llamas with experts, which share their architecture's name with those without."""

ARCHITECTURES = {
    "gemma": Architecture("gemma", configurations.gemma, LLAMA, shifts_norms=True),
    "gemma2": Architecture("gemma2", configurations.gemma2, POST_NORMS, shifts_norms=True),
    "gemma3": Architecture("gemma3_text", configurations.gemma3, POST_NORMS, shifts_norms=True),
    "gpt2": Architecture("gpt2", configurations.gpt2, JOINT),
    "llama": Architecture("llama", configurations.llama, LLAMA, permutes_heads=True),
    "phi3": Architecture("phi3", configurations.phi3, JOINT),
    "qwen2": Architecture("qwen2", configurations.qwen2, LLAMA),
    "qwen2moe": Architecture("qwen2_moe", configurations.qwen2moe, LLAMA),
    "qwen3": Architecture("qwen3", configurations.qwen3, LLAMA),
    "qwen3moe": Architecture("qwen3_moe", configurations.qwen3moe, LLAMA),
}
"""By the name that files have for them."""
