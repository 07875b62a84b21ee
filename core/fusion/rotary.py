"""RoPE as one operation, in place of the function that attention's forward code calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, ClassVar

import torch
from torch import nn

from core.fusion.ops import TritonOps
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import AttentionSite
from core.kernels.triton.head_norm import QueryKeyNorm

FUNCTION = "apply_rotary_pos_emb"
"""The name of the RoPE function in transformers' modelling code."""

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Takes query, key, cosines and sines; returns the rotated query and key."""


def _forward(attention: nn.Module) -> Callable[..., object]:
    """The forward function of the module's class, without decorators."""
    forward: Callable[..., object] = inspect.unwrap(type(attention).forward)
    return forward


def applies_rope(attention: nn.Module) -> bool:
    """Return true if the module's forward code calls the function by its usual name."""
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


def fused_rotation(
    ops: TritonOps, original: Rotation, norm: QueryKeyNorm | None = None
) -> Rotation:
    """Return a replacement for ``original``, to which it passes calls of unusual shapes.

    With a ``norm``, each head is normalised first. Query and key may be overwritten.
    """

    def rotate(
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        is_usual = q.dim() == 4 and q.shape[0] == 1 and cos.shape == (1, q.shape[2], q.shape[3])
        if more or named or not is_usual or any(t.stride(-1) != 1 for t in (q, k, cos, sin)):
            if norm is not None:
                q = ops.rms_norm(q, norm.query_weight, norm.epsilon, norm.offset)
                k = ops.rms_norm(k, norm.key_weight, norm.epsilon, norm.offset)
            return original(q, k, cos, sin, *more, **named)
        query, key = q[0].transpose(0, 1), k[0].transpose(0, 1)  # [num_tokens, heads, dim]
        query, key = ops.rotate(query, key, cos[0], sin[0], norm)
        return query.transpose(0, 1)[None], key.transpose(0, 1)[None]

    return rotate


def rotary_pattern(ops: TritonOps, site: AttentionSite) -> Iterator[FusedRotation]:
    """RoPE as one operation, for attention that applies it."""
    if applies_rope(site.attention):
        yield FusedRotation(site, fused_rotation(ops, original_rotation(site.attention)))
