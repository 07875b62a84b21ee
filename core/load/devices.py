"""Choose the device and the type of a model."""

from __future__ import annotations

import torch

from core.contract.config import DType
from core.contract.errors import ModelLoadError
from core.system.private_names import cpu_multiplies_bfloat16

COMPUTED = (torch.float32, torch.bfloat16, torch.float16)
"""Types of activations. Weights of other types are quantised codes or their scales."""

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA if available. Raises ModelLoadError if CUDA is named but not available."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("device 'cuda' was asked for, but torch sees no CUDA device")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def pick_dtype(
    name: DType,
    checkpoint: torch.dtype | None,
    device: torch.device,
    *,
    by_kernels: bool = False,
) -> torch.dtype:
    """``auto`` is the type of the checkpoint, or float32 if the device computes that type slowly.

    torch's own products are fast in bfloat16 only with instructions for it. With ``by_kernels`` the
    compiled kernels compute, which store bfloat16 and multiply it in float32 without them. No CPU
    computes float16 fast.
    """
    if name != "auto":
        return _DTYPES[name]
    dtype = checkpoint if checkpoint in COMPUTED else torch.float32
    assert dtype is not None
    if device.type != "cpu" or dtype is torch.float32:
        return dtype
    is_fast = dtype is torch.bfloat16 and (by_kernels or cpu_multiplies_bfloat16())
    return torch.bfloat16 if is_fast else torch.float32
