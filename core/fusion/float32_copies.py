"""Float32Copies: copies of modules in float32, in memory that is used again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import nn

from core.kernels.linear_in_pieces import linear_in_pieces
from core.module.plain import is_plain

_LARGE = 1 << 24
"""Values of a linear layer's weight from which there is no copy of all of it."""


class Float32Copies:
    """Copies modules to float32. The next call overwrites the copies of the last one.

    New memory for every copy would cost more in page faults than the conversion does.
    """

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def of(self, modules: Sequence[nn.Module]) -> list[Any]:
        """Return a module that computes in float32 for each of ``modules``."""
        copied = [module for module in modules if not _is_large(module)]
        copies = iter(self._copies(copied))
        return [Widened(module) if _is_large(module) else next(copies) for module in modules]

    def _copies(self, modules: Sequence[nn.Module]) -> list[Any]:
        """Copies with float32 parameters and buffers."""
        tensors = {id(t): t for m in modules for t in (*m.parameters(), *m.buffers())}
        narrow = {key: tensor for key, tensor in tensors.items() if _can_convert(tensor)}
        num_values = sum(tensor.numel() for tensor in narrow.values())
        if len(self._memory) < num_values:
            self._memory = torch.empty(num_values)
        converted: dict[int, torch.Tensor] = {}
        start = 0
        for key, tensor in narrow.items():
            wide = self._memory.as_strided(tensor.size(), tensor.stride(), start).copy_(tensor)
            is_parameter = isinstance(tensor, nn.Parameter)
            converted[key] = nn.Parameter(wide, requires_grad=False) if is_parameter else wide
            start += tensor.numel()
        # deepcopy takes what it finds in the memo as the copy
        return [copy.deepcopy(module, dict(converted)).float() for module in modules]


class Widened(nn.Module):
    """A linear layer with a weight of 16 bits, computed in float32 piece by piece."""

    def __init__(self, original: nn.Linear) -> None:
        super().__init__()
        self._original = original

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]`` of float32."""
        weight, bias = self._original.weight, self._original.bias
        num_rows, num_columns = weight.shape
        y = linear_in_pieces(
            x,
            (num_rows, num_columns),
            lambda start, out: out.copy_(weight[start : start + len(out)]),
        )
        return y if bias is None else y + bias.float()


def _is_large(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether this is an ordinary linear layer, such as a head, that should not be copied."""
    return (
        type(module) is nn.Linear
        and is_plain(module)
        and _can_convert(module.weight)
        and module.weight.numel() >= _LARGE
    )


def _can_convert(tensor: torch.Tensor) -> bool:
    """Whether this is a plain 16-bit tensor, stored by row or by column."""
    is_16_bit = tensor.dtype in (torch.bfloat16, torch.float16)
    is_dense = tensor.is_contiguous() or (tensor.dim() == 2 and tensor.t().is_contiguous())
    return is_16_bit and is_dense and type(tensor) in (torch.Tensor, nn.Parameter)
