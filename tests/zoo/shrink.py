"""Tiny configurations of every causal language model of transformers.

A family's default configuration says which fields it has. Every field that sizes something gets a
small value, so that a family needs a line here only if its fields depend on each other.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.zoo.fields import FAMILIES, SIZES

VOCAB_SIZE = 211
WINDOW = 16


def families() -> list[str]:
    """The model types of AutoModelForCausalLM."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_config(family: str, **fields: Any) -> PretrainedConfig:
    """A small configuration of a family; ``fields`` have the last word."""
    cls = CONFIG_MAPPING[family]
    default = cls()
    own = FAMILIES.get(family, {}) | fields
    parts: dict[str, dict[str, Any]] = {}
    text_part = None
    for name in cls.sub_configs:
        part = getattr(default, name, None)
        if isinstance(part, PretrainedConfig):
            parts[name] = part.to_dict() | _small_fields(part)
            parts[name].pop("per_layer_config", None)  # of layers that are left out
            if name in ("text_config", "decoder"):
                text_part = name
                parts[name] |= FAMILIES.get(part.model_type, {}) | own
    return cls(**parts) if text_part else cls(**(_small_fields(default) | parts | own))


def tiny_model(config: PretrainedConfig) -> torch.nn.Module:
    """A model with fixed random weights, wide enough that ties do not happen."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
        else:  # no bias is zero and no scale one
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval().requires_grad_(False)


def _small_fields(default: PretrainedConfig) -> dict[str, Any]:
    """The fields of a configuration that size something, with small values."""
    known = default.to_dict()
    synonyms = default.attribute_map or {}
    fields = {
        name: value
        for name, value in SIZES.items()
        if name in known and known[name] is not None and name not in synonyms
    }
    if known.get("sliding_window"):
        fields["sliding_window"] = WINDOW
    kinds = known.get("layer_types")
    if kinds:
        each = list(dict.fromkeys(kinds))
        fields["layer_types"] = (each * 2)[: max(2, len(each))]
        for name in ("num_hidden_layers", "num_layers", "n_layer"):
            if name in fields:
                fields[name] = len(fields["layer_types"])
    return fields
