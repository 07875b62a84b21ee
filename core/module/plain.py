"""Recognise modules that are as torch or transformers made them; only these may be replaced.

Quantised checkpoints have modules of a library, or ordinary modules whose weight is a tensor
subclass or whose forward function the library replaced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.load.devices import COMPUTED
from core.system.private_names import has_hooks


def is_plain(module: Any) -> bool:
    """Return true if a module has an ordinary weight, and computes what its class says with it."""
    return (
        type(getattr(module, "weight", None)) is nn.Parameter
        and module.weight.dtype in COMPUTED
        and "forward" not in vars(module)
        and not has_hooks(module)
    )


def activation_dtype(model: nn.Module) -> torch.dtype:
    """Return the type that a model computes in: that of its first weights that are not codes.

    These are an embedding's: quantisation methods leave it alone, or report the type that it
    returns.
    """
    return next(p.dtype for p in model.parameters() if p.dtype in COMPUTED)
