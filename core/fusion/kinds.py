"""Kinds of modules: what compute the same but for the values of their weights."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from types import FunctionType

import torch
from torch import nn

from core.gguf.blocks import BlockMatrix

_INTERNAL = frozenset(vars(nn.Module()))
_HOOKS = tuple(name for name in _INTERNAL if name.endswith("_hooks"))
_VALUES = (bool, int, float, str, type(None), torch.dtype, torch.device)

LAYER_INDEX = "layer_idx"
"""The attribute that tells a layer's place. It differs between layers of one kind."""


def kind_of(module: nn.Module, *, attention: nn.Module | None = None) -> Hashable:
    """Return what a module and its children consist of: classes, attributes, and shapes.

    Modules of one kind run the same code. An attribute that is no plain value counts by identity:
    layers share their configuration and functions, but not a replaced ``forward``. A layer's place
    counts where the code asks for it; that of ``attention`` is for its cache, and never counts.
    """
    return tuple(
        (name, type(part), *_facts(part, is_attention=part is attention))
        for name, part in module.named_modules()
    )


def _facts(module: nn.Module, *, is_attention: bool) -> tuple[Hashable, ...]:
    own = {name: value for name, value in vars(module).items() if name not in _INTERNAL}
    if is_attention or not _reads_layer_index(module):
        own.pop(LAYER_INDEX, None)
    tensors = {**module._parameters, **module._buffers}  # noqa: SLF001 - without the children's
    has_hooks = any(getattr(module, name) for name in _HOOKS)
    return (
        module.training,
        id(module) if has_hooks else None,
        tuple((name, _fact(value)) for name, value in own.items()),
        tuple((name, None if t is None else (t.shape, t.dtype)) for name, t in tensors.items()),
    )


def _fact(value: object) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_fact, value))
    if isinstance(value, BlockMatrix):
        return (value.type.name, value.shape)
    if isinstance(value, partial):
        named = sorted(value.keywords.items())
        return _fact((value.func, value.args, *named))
    return (type(value), value) if isinstance(value, _VALUES) else id(value)


def _reads_layer_index(module: nn.Module) -> bool:
    forward = type(module).forward
    return not isinstance(forward, FunctionType) or LAYER_INDEX in forward.__code__.co_names
