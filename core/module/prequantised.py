"""Checkpoints that come quantised. transformers loads them with the library of their method.

Their quantised layers stay that library's; the rest of the model is treated like any other.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from core.contract.errors import ModelLoadError


def quantisation_of(hf_config: Any) -> str | None:
    """Return the name of the method that a checkpoint is quantised with, or None.

    Raises ModelLoadError if transformers does not know the method: it would ignore it.
    """
    from transformers import __version__  # noqa: PLC0415 - slow to import
    from transformers.quantizers import AutoHfQuantizer  # noqa: PLC0415

    found = getattr(hf_config, "quantization_config", None)
    if found is None:
        found = getattr(hf_config.get_text_config(), "quantization_config", None)
    if found is None:
        return None
    settings = found if isinstance(found, dict) else found.to_dict()
    method = str(getattr(settings.get("quant_method"), "value", settings.get("quant_method")))
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        method = "bitsandbytes"
    elif not AutoHfQuantizer.supports_quant_method({"quant_method": method}):
        raise ModelLoadError(
            f"the checkpoint is quantised with {method!r}, which transformers {__version__} does "
            "not know"
        )
    return method


def placement(device: torch.device) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that load a quantised model onto its device.

    Some methods pack their weights for the device while they load. transformers needs accelerate
    for that; without it the model is moved after loading, which other methods allow.
    """
    if device.type == "cpu" or find_spec("accelerate") is None:
        return {}
    return {"device_map": {"": device}}


def move(module: Any, device: torch.device) -> Any:
    """Return the model on the device. Not every method allows a move, so it is avoided."""
    tensors = (*module.parameters(), *module.buffers())
    if all(tensor.device.type == device.type for tensor in tensors):
        return module
    return module.to(device)


def is_quantised(module: Any) -> bool:
    """Return true if a loaded model has quantised layers of a library."""
    return bool(getattr(module, "is_quantized", False))
