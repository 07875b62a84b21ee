"""describe: what the configuration of a module of transformers says."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.load.config_files import SAMPLING, end_ids
from core.load.loaded_model import LoadedModel, context_length
from core.module.layout import store_conv1d_by_column
from core.module.plain import activation_dtype


def describe(module: Any, device: torch.device) -> LoadedModel:
    """Prepare a module that is on ``device`` for inference, and read its configuration."""
    module = module.eval().requires_grad_(requires_grad=False)
    skip_padding_checks(module)
    if device.type == "cpu":
        store_conv1d_by_column(module)
    text_config = module.config.get_text_config()
    config_eos_ids = _eos_token_ids(text_config)
    return LoadedModel(
        module=module,
        config=text_config,
        device=device,
        dtype=activation_dtype(module),
        vocab_size=text_config.vocab_size,
        max_model_len=context_length(text_config),
        eos_token_ids=_eos_token_ids(getattr(module, "generation_config", None)) or config_eos_ids,
        config_eos_ids=config_eos_ids,
        default_sampling=_default_sampling(module),
        num_parameters=sum(parameter.numel() for parameter in module.parameters()),
    )


def skip_padding_checks(module: nn.Module) -> None:
    """Let no pass look for padding in its token ids. Steps have none.

    Models such as GPT-2 look for ``pad_token_id`` to warn. On a GPU that makes the host wait for
    the device, which also rules out CUDA graphs.
    """
    for part in module.modules():
        if hasattr(part, "warn_if_padding_and_no_attention_mask"):
            vars(part)["warn_if_padding_and_no_attention_mask"] = _no_check


def _no_check(*_: object, **_named: object) -> None: ...


def _eos_token_ids(config: Any) -> frozenset[int]:
    """End tokens that a configuration names."""
    return end_ids({"eos_token_id": getattr(config, "eos_token_id", None)})


def _default_sampling(module: Any) -> dict[str, float]:
    """Sampling values of the model's generation config."""
    config = getattr(module, "generation_config", None)
    values = {name: getattr(config, name, None) for name in SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
