"""Names of transformers' modules for the tensors of a file, where transformers computes the model.

Sources: transformers' modules; the tensors that llama.cpp reads for an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.contract.errors import ModelLoadError
from core.gguf.architectures import ARCHITECTURES, Architecture
from core.gguf.architectures import MIXTRAL as MIXTURE
from core.gguf.describe import values_of
from core.gguf.file import GgufFile

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


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """The modules of an architecture by the names of tensors, without ``.weight`` and ``.bias``."""

    architecture: Architecture
    layer: Mapping[str, str]
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)
    layers: str = "model.layers"
    is_transposed: bool = False
    """True if the model stores its matrices by column, as Conv1D does."""

    @property
    def model_type(self) -> str:
        """transformers' name of the architecture."""
        return self.architecture.model_type

    @property
    def norm_offset(self) -> float:
        """Number that the file adds to the weights of norms."""
        return 1.0 if self.architecture.shifts_norms else 0.0


def modules_of(file: GgufFile) -> tuple[ModuleNames, dict[str, Any]]:
    """The names of a file's modules, and its configuration as ``config.json`` says it.

    Raises ModelLoadError.
    """
    name = file.metadata.text("general.architecture")
    if name not in MODULES:
        raise ModelLoadError(
            f"its architecture {name!r} is not supported; {', '.join(sorted(MODULES))} are"
        )
    architecture, values = values_of(file)
    return MIXTRAL if architecture is MIXTURE else MODULES[name], values


MIXTRAL = ModuleNames(MIXTURE, _ATTENTION | _EXPERTS)

_LAYERS = {
    "llama": _ATTENTION | _MLP,
    "qwen2": _ATTENTION | _MLP,
    "qwen2moe": _ATTENTION | _EXPERTS | _SHARED_EXPERT,
    "qwen3": _ATTENTION | _HEAD_NORMS | _MLP,
    "qwen3moe": _ATTENTION | _HEAD_NORMS | _EXPERTS,
    "gemma": _ATTENTION | _MLP,
    "gemma2": _ATTENTION | _MLP | _GEMMA_NORMS,
    "gemma3": _ATTENTION | _HEAD_NORMS | _MLP | _GEMMA_NORMS,
    "phi3": {
        "attn_norm": "input_layernorm",
        "attn_qkv": "self_attn.qkv_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
    },
}

MODULES = {
    **{name: ModuleNames(ARCHITECTURES[name], layer) for name, layer in _LAYERS.items()},
    "gpt2": ModuleNames(
        ARCHITECTURES["gpt2"],
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
"""By the name that files have for the architecture."""
