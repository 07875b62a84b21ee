"""Kinds of modules: what compute the same but for the values of their weights."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Hashable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from core.system.private_names import own_tensors

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
    A module with both children and tensors of its own, and one with hooks, is a kind by itself: its
    code can multiply by a scale that is 1 in one layer only.
    """
    return tuple(
        (name, type(part), *_facts(part, is_attention=part is attention))
        for name, part in module.named_modules()
    )


def _facts(module: nn.Module, *, is_attention: bool) -> tuple[Hashable, ...]:
    own = {name: value for name, value in vars(module).items() if name not in _INTERNAL}
    if LAYER_INDEX in own and (is_attention or not _reads_layer_index(type(module))):
        del own[LAYER_INDEX]
    tensors = own_tensors(module)
    has_hooks = any(getattr(module, name) for name in _HOOKS)
    is_mixed = any(module.children()) and any(t is not None for t in tensors.values())
    return (
        module.training,
        weakref.ref(module) if has_hooks or is_mixed else None,  # an id can be used again
        tuple((name, _fact(value)) for name, value in own.items()),
        tuple((name, None if t is None else (t.shape, t.dtype)) for name, t in tensors.items()),
    )


def _fact(value: object) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_fact, value))
    if isinstance(value, partial):
        named = sorted(value.keywords.items())
        return _fact((value.func, value.args, *named))
    return (type(value), value) if isinstance(value, _VALUES) else id(value)


def _reads_layer_index(kind: type[nn.Module]) -> bool:
    """Whether any method of a class but its ``__init__`` names the attribute."""
    if not isinstance(kind.forward, FunctionType):
        return True
    classes = [each for each in kind.__mro__ if each not in nn.Module.__mro__]
    return any(
        LAYER_INDEX in code.co_names or LAYER_INDEX in code.co_consts
        for each in classes
        for name, value in vars(each).items()
        if name != "__init__"
        for function in (value, getattr(value, "fget", None))
        for code in _codes(function)
    )


def _codes(function: Any) -> Iterator[CodeType]:
    """The code of a function, of what it wraps, and of the functions inside."""
    pending = [getattr(f, "__code__", None) for f in (function, inspect.unwrap(function))]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield code
            pending += code.co_consts
