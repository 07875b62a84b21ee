"""The weights that stay in a model: small ones become float32, large ones keep their type."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from core.gguf.modules import weights_in_blocks

logger = logging.getLogger("roseinfer.core")

LARGE = 1 << 21
"""Values of a module from which it keeps their type. DeepSeek-V3's router has fewer."""


def widen_small(model: nn.Module, large: int = LARGE) -> None:
    """Convert weights to float32, except those of modules that hold ``large`` values or more.

    Such a module keeps its type with all that is in it. It gets its input and gives its output in
    that type; around it, activations are float32. All weights get memory of their own, so that a
    mapped checkpoint is released.
    """
    kept: set[nn.Module] = set()
    for module in model.modules():
        narrow = [t for t in _own(module) if t.is_floating_point() and t.dtype.itemsize < 4]
        if module in kept or sum(t.numel() for t in narrow) < large:
            continue
        inside = set(module.modules())
        _bound(module, narrow[0].dtype, inside - kept)
        kept |= inside
    for module in model.modules():
        for tensor in _own(module):
            if tensor.is_floating_point():
                dtype = tensor.dtype if module in kept else torch.float32
                tensor.data = tensor.data.to(dtype, copy=True)


def numbers_of_values(model: nn.Module) -> tuple[int, int]:
    """Count a model's weights, and those of them that are in blocks."""
    num_in_blocks = sum(weight.rows * weight.columns for weight in weights_in_blocks(model))
    return num_in_blocks + sum(parameter.numel() for parameter in model.parameters()), num_in_blocks


def log_bytes(model: nn.Module, num_parameters: int, num_packed: int) -> None:
    """Log the size of the weights: those in the model, and ``num_packed`` bytes beside them."""
    num_bytes = num_packed + sum(
        tensor.nbytes for tensor in (*model.parameters(), *model.buffers())
    )
    logger.info(
        "weights: %s MB (%.1f bytes per parameter)",
        f"{num_bytes / 1e6:,.0f}",
        num_bytes / num_parameters,
    )


def _own(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _bound(module: nn.Module, dtype: torch.dtype, inside: set[nn.Module]) -> None:
    """Convert what enters and leaves a module; fused modules in it answer in its type."""
    module.register_forward_pre_hook(
        lambda _module, args, kwargs: (_converted(args, dtype), _converted(kwargs, dtype)),
        with_kwargs=True,
    )
    for child in inside - {module}:
        if not list(child.parameters()):
            child.register_forward_hook(lambda _module, _args, out: _converted(out, dtype))
    module.register_forward_hook(lambda _module, _args, out: _converted(out, torch.float32))


def _converted(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floating-point tensors in a value or in a plain container of values."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(_converted(item, dtype) for item in value)
    if type(value) is dict:
        return {key: _converted(item, dtype) for key, item in value.items()}
    return value
