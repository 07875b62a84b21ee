"""Our attention as an implementation in transformers' attention registry.

transformers looks up attention functions by name. We register one name, and route its calls to a
function that a table has for each attention module. So no modelling code is forked, and every model
family that uses the registry works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

ATTENTION_NAME = "roseinfer"

MASKED_ATTENTION_NAME = "roseinfer_masked"
"""The same, called with the mask that transformers would use, as ``attention_mask``."""

ModuleAttention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, nn.Module, dict[str, Any]], torch.Tensor
]
"""Packed attention of a module: query, key and value ``[num_tokens, heads, dim]``, the module, and
the keyword arguments of the call. Returns ``[num_tokens, num_heads, value_dim]``."""


def register() -> None:
    """Register the names with transformers. May be repeated."""
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - slow
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415 - slow to import

    AttentionInterface.register(ATTENTION_NAME, _dispatch)
    AttentionInterface.register(MASKED_ATTENTION_NAME, _dispatch_masked)

    def mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
        found: torch.Tensor | None = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
        return found

    AttentionMaskInterface.register(MASKED_ATTENTION_NAME, mask)


_ROUTES: WeakKeyDictionary[nn.Module, ModuleAttention] = WeakKeyDictionary()
"""The attention of each module that ``route`` got. It holds no strong reference to the module."""


def route(modules: Iterable[nn.Module], attention: ModuleAttention) -> None:
    """Send the attention calls of ``modules`` to ``attention``, which may refer to none of them.

    Otherwise the modules would live until ``unroute``.
    """
    _ROUTES.update(dict.fromkeys(modules, attention))


def unroute(modules: Iterable[nn.Module]) -> None:
    """Undo ``route``. May be repeated."""
    for module in modules:
        _ROUTES.pop(module, None)


@contextmanager
def routed(modules: Iterable[nn.Module], attention: ModuleAttention) -> Iterator[None]:
    """Route the attention calls of ``modules`` in the block."""
    modules = list(modules)
    route(modules, attention)
    try:
        yield
    finally:
        unroute(modules)


def _dispatch(
    module: nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_tokens, head_dim]
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - positions determine the mask
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls."""
    return _attend(module, query, key, value, kwargs)


def _dispatch_masked(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls for ``MASKED_ATTENTION_NAME``."""
    return _attend(module, query, key, value, {**kwargs, "attention_mask": attention_mask})


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kwargs: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    q, k, v = (states[0].transpose(0, 1) for states in (query, key, value))
    return _ROUTES[module](q, k, v, module, kwargs)[None], None
