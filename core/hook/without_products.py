"""WithoutProducts: leave out products with weights where their values do not matter."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class WithoutProducts(TorchFunctionMode):
    """Inside the block, a product with a weight is what it is for zeros: zero, or the bias.

    So a pass of a large model is cheap.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear and len(args) >= 2 and type(args[1]) is nn.Parameter:
            x, weight, *rest = args
            y = x.new_zeros(*x.shape[:-1], len(weight))
            bias = rest[0] if rest else (kwargs or {}).get("bias")
            return y if bias is None else y + bias
        return func(*args, **(kwargs or {}))
