"""Our attention as an implementation in transformers' attention registry.

transformers looks up attention functions by name. We register one name, and route its calls to a
function that each attention module holds. So no modelling code is forked, and every model family
that uses the registry works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

ATTENTION_NAME = "roseinfer"

ModuleAttention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, nn.Module, dict[str, Any]], torch.Tensor
]
"""Packed attention of a module: query, key and value ``[num_tokens, heads, dim]``, the module, and
the keyword arguments of the call. Returns ``[num_tokens, num_heads, value_dim]``."""


def register() -> None:
    """Register ``ATTENTION_NAME`` with transformers. May be repeated."""
    from transformers import AttentionInterface  # noqa: PLC0415 - slow to import

    AttentionInterface.register(ATTENTION_NAME, _dispatch)


def route(modules: Iterable[nn.Module], attention: ModuleAttention) -> None:
    """Send the attention calls of ``modules`` to ``attention``."""
    for module in modules:
        module.roseinfer_attention = attention  # type: ignore[assignment]


def unroute(modules: Iterable[nn.Module]) -> None:
    """Undo ``route``."""
    for module in modules:
        del module.roseinfer_attention


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
    attention: ModuleAttention = module.roseinfer_attention  # type: ignore[assignment]
    output = attention(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), module, kwargs
    )
    return output[None], None
