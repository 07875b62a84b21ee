"""WithoutProducts: leave out products with weights where their values do not matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from core.gguf.modules import BlockLinear, product


class WithoutProducts(TorchFunctionMode):
    """Inside the block, a product with a weight is what it is for zeros: zero, or the bias.

    So a pass of a large model is cheap.
    """

    def __init__(self, inside: Iterable[nn.Module] | None = None) -> None:
        """``inside``: only those of these modules and their children. None: all."""
        super().__init__()
        self._weights = None if inside is None else {id(w) for m in inside for w in _weights(m)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is product:
            x, weight = args
            if self._is_left_out(weight):
                return x.new_zeros(*x.shape[:-1], weight.rows, dtype=torch.float32)
        elif func is functional.linear and len(args) >= 2 and type(args[1]) is nn.Parameter:
            x, weight, *rest = args
            if self._is_left_out(weight):
                y = x.new_zeros(*x.shape[:-1], len(weight))
                bias = rest[0] if rest else (kwargs or {}).get("bias")
                return y if bias is None else y + bias
        return func(*args, **(kwargs or {}))

    def _is_left_out(self, weight: object) -> bool:
        return self._weights is None or id(weight) in self._weights


def _weights(module: nn.Module) -> Iterable[object]:
    yield from module.parameters()
    yield from (part.weight for part in module.modules() if isinstance(part, BlockLinear))
