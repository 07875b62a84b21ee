"""Checkpoints that come quantised: transformers loads them, with the library of their method.

Their quantised layers stay that library's; all else is ours as ever.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from core.contract.errors import ModelLoadError


def quantisation_of(hf_config: Any) -> str | None:
    """The name of the method that a checkpoint says it is quantised with.

    Raises ModelLoadError for one that transformers does not know: it would load what it finds.
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
    """How ``from_pretrained`` is told to load a quantised model where it will be used.

    Some methods pack their weights for the device on the way. transformers needs accelerate for
    it; without that the model is moved later, which the other methods allow.
    """
    if device.type == "cpu" or find_spec("accelerate") is None:
        return {}
    return {"device_map": {"": device}}


def move(module: Any, device: torch.device) -> Any:
    """The model on the device; not asked to move if it is there, which not every method allows."""
    tensors = (*module.parameters(), *module.buffers())
    if all(tensor.device.type == device.type for tensor in tensors):
        return module
    return module.to(device)


def is_quantised(module: Any) -> bool:
    """Whether a loaded model has quantised layers of some library's in it."""
    return bool(getattr(module, "is_quantized", False))
