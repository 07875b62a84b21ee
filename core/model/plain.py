"""What of a model is as torch made it: only that may be replaced by something of ours.

A checkpoint that comes quantised has modules of its library's own kind, or ordinary ones whose
weight is a tensor of its own kind or whose forward is the library's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

COMPUTED = (torch.float32, torch.bfloat16, torch.float16)
"""What activations may be. Weights in other types are codes, or scales of codes."""


def is_plain(module: Any) -> bool:
    """Whether a module has a weight of ordinary numbers, and does what its class says with it."""
    return (
        type(getattr(module, "weight", None)) is nn.Parameter
        and module.weight.dtype in COMPUTED
        and "forward" not in vars(module)
        and not module._forward_hooks  # noqa: SLF001 - there is no other way to ask
        and not module._forward_pre_hooks  # noqa: SLF001
    )


def activation_dtype(model: nn.Module) -> torch.dtype:
    """What a model computes in: the type of its first weights that are no codes.

    These are an embedding's, which quantisation leaves alone or hides behind the type that it
    gives. A model without any has not been loaded.
    """
    return next(p.dtype for p in model.parameters() if p.dtype in COMPUTED)
