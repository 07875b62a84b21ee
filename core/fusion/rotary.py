"""Replace the RoPE function that an attention module's forward code calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import ClassVar

import torch
from torch import nn

from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import AttentionSite

FUNCTION = "apply_rotary_pos_emb"
"""The name of the RoPE function in transformers' modelling code."""

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Takes query, key, cosines and sines; returns the rotated query and key."""


def _forward(attention: nn.Module) -> Callable[..., object]:
    """The forward function of the module's class, without decorators."""
    forward: Callable[..., object] = inspect.unwrap(type(attention).forward)
    return forward


def applies_rope(attention: nn.Module) -> bool:
    """Whether the module's forward code calls the function by its usual name."""
    forward = _forward(attention)
    return (
        isinstance(forward, FunctionType)
        and FUNCTION in forward.__code__.co_names
        and callable(forward.__globals__.get(FUNCTION))
    )


def original_rotation(attention: nn.Module) -> Rotation:
    """Return the function that the module's class calls."""
    forward = _forward(attention)
    assert isinstance(forward, FunctionType)
    rotation: Rotation = forward.__globals__[FUNCTION]
    return rotation


def install_rotation(attention: nn.Module, rotation: Rotation) -> None:
    """Let the forward code of this one module call ``rotation``.

    The module gets a copy of its class's undecorated forward function with globals of its own; the
    class and its module stay as they are.
    """
    forward = _forward(attention)
    assert isinstance(forward, FunctionType)
    names = {**forward.__globals__, FUNCTION: rotation}
    copy = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    copy.__kwdefaults__ = forward.__kwdefaults__
    attention.forward = MethodType(copy, attention)


class FusedRotation:
    """A candidate: one operation in place of the RoPE function of an attention module."""

    counts: ClassVar[Mapping[str, int]] = {"rotary": 1}

    def __init__(self, site: AttentionSite, fused: Rotation) -> None:
        """``fused`` may overwrite the query and the key."""
        self._site = site
        self._fused = fused

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate."""
        spec = self._site.spec
        q = proof.random(1, NUM_ROWS, spec.num_heads, spec.head_dim).transpose(1, 2)
        k = proof.random(1, NUM_ROWS, spec.num_kv_heads, spec.head_dim).transpose(1, 2)
        cos, sin = (proof.random(1, NUM_ROWS, spec.head_dim) for _ in range(2))
        expected = output_of(original_rotation(self._site.attention), q, k, cos, sin)
        if expected is None:
            return False
        actual = self._fused(q.clone(), k.clone(), cos, sin)
        return all(proof.is_close(a, b) for a, b in zip(expected, actual, strict=True))

    def install(self) -> None:
        """See Candidate."""
        install_rotation(self._site.attention, self._fused)


def rotation(site: AttentionSite, fuse: Callable[[Rotation], Rotation]) -> Iterator[FusedRotation]:
    """The rotation that ``fuse`` makes of the original, for attention that applies RoPE."""
    if applies_rope(site.attention):
        yield FusedRotation(site, fuse(original_rotation(site.attention)))
