"""Our attention as an implementation in transformers' attention registry.

transformers looks up attention functions by name. We register one name, and route its calls to a
function that each attention module holds. So no modelling code is forked, and every model family
that uses the registry works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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


def route(modules: Iterable[nn.Module], attention: ModuleAttention) -> None:
    """Send the attention calls of ``modules`` to ``attention``."""
    for module in modules:
        module.roseinfer_attention = attention  # type: ignore[assignment]


def unroute(modules: Iterable[nn.Module]) -> None:
    """Undo ``route`` and ``offer``. May be repeated."""
    for module in modules:
        vars(module).pop("roseinfer_attention", None)
        vars(module).pop("roseinfer_kernel_call", None)


class KernelCall(NamedTuple):
    """The address of an AttentionCall. ``offer`` is an object that its calls have in common."""

    address: int
    offer: object


def offer(modules: Iterable[nn.Module], calls: Iterable[int]) -> None:
    """Offer a kernel beside the function of ``route``: the addresses of its AttentionCalls."""
    common = object()
    for module, call in zip(modules, calls, strict=True):
        module.roseinfer_kernel_call = KernelCall(call, common)  # type: ignore[assignment]


def kernel_call_of(module: nn.Module) -> KernelCall | None:
    """Return what ``offer`` stored."""
    return vars(module).get("roseinfer_kernel_call")


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


def _dispatch_masked(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls for ``MASKED_ATTENTION_NAME``."""
    attention: ModuleAttention = module.roseinfer_attention  # type: ignore[assignment]
    kwargs["attention_mask"] = attention_mask
    output = attention(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), module, kwargs
    )
    return output[None], None
