"""Fix RoPE frequencies at load.

transformers computes the frequencies of two kinds of RoPE from the largest position of a forward
pass. A pass of ours has the tokens of several sequences in it: a long neighbour would change what a
short one computes, and what the prefix cache keeps of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FIXED = "fixed"
"""The RoPE type of a module whose frequencies transformers must not change."""


@torch.inference_mode()
def fix_rope(model: nn.Module, max_model_len: int) -> None:
    """Set the frequencies of RoPE modules for sequences of ``max_model_len`` tokens.

    "longrope" has long factors if that is more than the length of the pretraining and short ones
    otherwise, as vLLM chooses. "dynamic" (NTK) scales its base by that length.
    """
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and _is_dynamic(kinds):
            _fix(module, kinds, None, max_model_len)
            module.rope_type = FIXED  # type: ignore[assignment]
        if isinstance(kinds, dict):
            for layer_type, kind in list(kinds.items()):
                if _is_dynamic(kind):
                    _fix(module, kind, layer_type, max_model_len)
                    kinds[layer_type] = FIXED


def _is_dynamic(kind: str) -> bool:
    """Whether transformers changes the frequencies of this kind in a forward pass."""
    return "dynamic" in kind or kind == "longrope"


def _fix(module: Any, kind: str, layer_type: str | None, max_model_len: int) -> None:
    from transformers.modeling_rope_utils import (  # noqa: PLC0415 - slow to import
        ROPE_INIT_FUNCTIONS,
    )

    prefix = "" if layer_type is None else f"{layer_type}_"
    frequencies = getattr(module, f"{prefix}inv_freq")
    computed, _ = ROPE_INIT_FUNCTIONS[kind](
        module.config, frequencies.device, seq_len=max_model_len, layer_type=layer_type
    )
    setattr(module, f"{prefix}inv_freq", computed.to(frequencies.dtype))
    parameters = module.config.rope_parameters
    scales = ("short_mscale", "long_mscale")
    if layer_type is None and all(name in parameters for name in scales):  # as Phi-3.5-MoE has
        is_long = max_model_len > parameters["original_max_position_embeddings"]
        parameters.update(dict.fromkeys(scales, parameters[scales[is_long]]))
