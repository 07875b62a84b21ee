"""Linear layers in float32, for CPUs that multiply narrower types slowly."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

BLOCK = 1 << 20
"""Weights that are converted at a time: their float32 copy stays in the cache."""


class Float32Products(TorchFunctionMode):
    """Compute ``nn.Linear`` and ``Conv1D`` of bfloat16 and float16 on a CPU in float32.

    The result has the type of the input and is rounded once. The weights keep their type: one
    block of them at a time is converted.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.linear and _is_narrow(args[0]):
            return _linear(*args, **kwargs)
        if func is torch.addmm and _is_narrow(args[1]) and not kwargs:
            return _addmm(*args)
        return func(*args, **kwargs)


def _is_narrow(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16)


def _linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x @ weight.T + bias`` for ``x`` [..., size] and ``weight`` [num_outputs, size]."""
    num_outputs, size = weight.shape
    wide, step = x.float(), max(1, BLOCK // size)
    output = torch.empty((*x.shape[:-1], num_outputs), dtype=x.dtype)
    for start in range(0, num_outputs, step):
        part = slice(start, start + step)
        part_bias = None if bias is None else bias[part].float()
        output[..., part] = functional.linear(wide, weight[part].float(), part_bias)
    return output


def _addmm(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``bias + x @ weight``: ``x`` [num_rows, size], ``weight`` [size, num_outputs]."""
    size, num_outputs = weight.shape
    wide, step = x.float(), max(1, BLOCK // num_outputs)
    total = bias.float()
    for start in range(0, size, step):
        part = slice(start, start + step)
        total = torch.addmm(total, wide[:, part], weight[part].float())
    return total.to(x.dtype)
