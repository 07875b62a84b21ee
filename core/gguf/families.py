"""The architectures that can be served: their configuration, and the names of their tensors.

Sources: transformers' configurations and modules; the tensors and keys that llama.cpp reads for an
architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf import configurations
from core.gguf.facts import HARMLESS, Facts
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
class ModuleFamily:
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


def family_of(file: GgufFile) -> tuple[ModuleFamily, dict[str, Any]]:
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


MIXTRAL = ModuleFamily(
    "mixtral", configurations.mixtral, _ATTENTION | _EXPERTS, permutes_heads=True
)
"""Llamas with experts, which share their architecture's name with those without."""

FAMILIES = {
    "llama": ModuleFamily("llama", configurations.llama, _ATTENTION | _MLP, permutes_heads=True),
    "qwen2": ModuleFamily("qwen2", configurations.qwen2, _ATTENTION | _MLP),
    "qwen2moe": ModuleFamily(
        "qwen2_moe", configurations.qwen2moe, _ATTENTION | _EXPERTS | _SHARED_EXPERT
    ),
    "qwen3": ModuleFamily("qwen3", configurations.plain, _ATTENTION | _HEAD_NORMS | _MLP),
    "qwen3moe": ModuleFamily(
        "qwen3_moe", configurations.qwen3moe, _ATTENTION | _HEAD_NORMS | _EXPERTS
    ),
    "gemma": ModuleFamily("gemma", configurations.plain, _ATTENTION | _MLP, norm_offset=1.0),
    "gemma2": ModuleFamily(
        "gemma2", configurations.gemma2, _ATTENTION | _MLP | _GEMMA_NORMS, norm_offset=1.0
    ),
    "gemma3": ModuleFamily(
        "gemma3_text",
        configurations.gemma3,
        _ATTENTION | _HEAD_NORMS | _MLP | _GEMMA_NORMS,
        norm_offset=1.0,
    ),
    "phi3": ModuleFamily(
        "phi3",
        configurations.phi3,
        {
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
    ),
    "gpt2": ModuleFamily(
        "gpt2",
        configurations.gpt2,
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
