"""Rotary embedding by the compiled kernel, inside an attention module's own forward code."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from core.kernels.cpu.library import Kernels

FUNCTION = "apply_rotary_pos_emb"
"""What transformers calls it in every family's modelling code."""

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def has_rotary(module: nn.Module) -> bool:
    """Whether the module's forward code calls the function by its usual name."""
    forward = type(module).forward
    return (
        isinstance(forward, FunctionType)
        and FUNCTION in forward.__code__.co_names
        and callable(forward.__globals__.get(FUNCTION))
    )


def original_rotation(module: nn.Module) -> Rotation:
    """Return the function as the module's own code finds it."""
    rotation: Rotation = type(module).forward.__globals__[FUNCTION]
    return rotation


def fused_rotation(library: Kernels, original: Rotation) -> Rotation:
    """Return a stand-in for ``original``, which still gets every call of an unusual shape."""

    def rotate(
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        is_usual = _is_usual(q, cos) and _is_usual(k, cos) and sin.shape == cos.shape
        if more or named or not is_usual:
            return original(q, k, cos, sin, *more, **named)
        cos, sin = cos.float().contiguous(), sin.float().contiguous()
        return library.rotary(q, cos, sin), library.rotary(k, cos, sin)

    return rotate


def _is_usual(states: torch.Tensor, cos: torch.Tensor) -> bool:
    """Whether these are ``[1, heads, tokens, n]`` float32, to be turned as a whole."""
    return (
        states.dim() == 4
        and states.dtype is torch.float32
        and states.shape[0] == states.stride(3) == 1
        and cos.shape == (1, states.shape[2], states.shape[3])
    )


def install_rotation(module: nn.Module, rotation: Rotation) -> None:
    """Let this one module's forward code find ``rotation`` in place of the function.

    The code is the class's own; only the name is looked up elsewhere. Nothing outside changes.
    """
    forward = type(module).forward
    assert isinstance(forward, FunctionType)
    names = {**forward.__globals__, FUNCTION: rotation}
    copy = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    copy.__kwdefaults__ = forward.__kwdefaults__
    module.forward = MethodType(copy, module)
