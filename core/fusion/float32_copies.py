"""Float32Copies: copies of modules in float32, in memory that is used again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Float32Copies:
    """Copies modules to float32. The next call overwrites the copies of the last one.

    New memory for every copy would cost more in page faults than the conversion does.
    """

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def of(self, modules: Sequence[nn.Module]) -> list[Any]:
        """Return a module with float32 parameters and buffers for each of ``modules``."""
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


def _can_convert(tensor: torch.Tensor) -> bool:
    """Whether this is a plain 16-bit tensor, stored by row or by column."""
    is_16_bit = tensor.dtype in (torch.bfloat16, torch.float16)
    is_dense = tensor.is_contiguous() or (tensor.dim() == 2 and tensor.t().is_contiguous())
    return is_16_bit and is_dense and type(tensor) in (torch.Tensor, nn.Parameter)
