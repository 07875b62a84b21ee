"""Products in float32 for a while, where a CPU multiplies narrower types slowly."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_PRODUCTS = (functional.linear, torch.addmm)
"""What linear layers are made of, GPT-2's kind too."""


class WideProducts(TorchFunctionMode):
    """Within, linear layers of narrow types on the CPU are computed over float32 copies.

    One matrix is copied at a time. Without instructions for bfloat16 torch's own products of few
    rows take ten times as long. The result has the type it would have, and is rounded once.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _PRODUCTS and _is_narrow(args[0]):
            wide = [x.float() if isinstance(x, torch.Tensor) else x for x in args]
            named = {k: x.float() if isinstance(x, torch.Tensor) else x for k, x in kwargs.items()}
            return func(*wide, **named).to(args[0].dtype)
        return func(*args, **kwargs)


def _is_narrow(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16)
