"""Load a model from a hub id, a directory, a GGUF file, a state dict, or the built-in one."""

from __future__ import annotations

from typing import Any

import torch

from core import builtin_model, load_progress
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.model.checkpoint import STATE_DICT_SUFFIXES, load_pretrained, load_state_dict
from core.model.devices import pick_device
from core.model.gguf import load_gguf
from core.model.gguf_source import find_gguf
from core.model.load_errors import one_line_errors
from core.model.loaded_model import LoadedModel, describe
from core.model.memory import enough_memory
from core.model.modelling_import import import_modelling
from core.model.prequantised import move
from core.model.room import check_room

__all__ = ["LoadedModel", "load_model", "source_of"]


def load_model(config: ModelConfig) -> LoadedModel:
    """Load the weights and move them to the device. Raises ModelLoadError with a one-line message.

    Remote code runs only with ``trust_remote_code``.
    """
    load_progress.begin("loading weights")
    device = pick_device(config.device)
    import_modelling()
    with one_line_errors(config.model or "the built-in model"):
        module = _load(config, device)
    with enough_memory("the weights"):
        module = move(module, device)
    return describe(module, device)


def source_of(config: ModelConfig) -> str:
    """Return where the model's config is, and its tokenizer by default.

    It is a directory, a hub id or a GGUF file.
    """
    gguf = find_gguf(config)
    if gguf is not None:
        return str(gguf)
    if config.model is None:
        return str(builtin_model.path())
    if _is_state_dict(config):
        if config.config is None or config.tokenizer is None:
            raise ModelLoadError(
                f"{config.model} is a bare state dict: it needs --config and --tokenizer"
            )
        return config.config
    return config.model


def _load(config: ModelConfig, device: torch.device) -> Any:
    gguf = find_gguf(config)
    if device.type == "cpu":
        check_room(config, gguf)
    if gguf is not None:
        return load_gguf(config, gguf, device)
    load = load_state_dict if _is_state_dict(config) else load_pretrained
    return load(config, source_of(config), device)


def _is_state_dict(config: ModelConfig) -> bool:
    return config.model is not None and config.model.endswith(STATE_DICT_SUFFIXES)
