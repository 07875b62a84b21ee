"""Load a model from a hub id, a directory, a GGUF file, a state dict, or the built-in one."""

from __future__ import annotations

from typing import Any

import torch

from core.contract.config import ModelConfig
from core.load.devices import pick_device
from core.load.errors import one_line_errors
from core.load.loaded_model import LoadedModel
from core.load.room import check_room
from core.load.source import find_gguf, is_state_dict, source_of
from core.module.checkpoint import load_pretrained
from core.module.facts import describe
from core.module.gguf import load_gguf
from core.module.modelling_import import import_modelling
from core.module.prequantised import move
from core.module.state_dict import load_state_dict
from core.observe import load_progress
from core.system.device_memory import enough_memory


def load_model(config: ModelConfig) -> LoadedModel:
    """Load the weights and move them to the device. Raises ModelLoadError with a one-line message.

    Remote code runs only with ``trust_remote_code``.
    """
    load_progress.begin("loading weights")
    device = pick_device(config.device)
    import_modelling()
    with one_line_errors(config):
        module = _load(config, device)
    with enough_memory("the weights"):
        module = move(module, device)
    return describe(module, device)


def _load(config: ModelConfig, device: torch.device) -> Any:
    gguf = find_gguf(config)
    if device.type == "cpu":
        check_room(config, gguf)
    if gguf is not None:
        return load_gguf(config, gguf, device)
    load = load_state_dict if is_state_dict(config) else load_pretrained
    return load(config, source_of(config), device)
