"""RoPE by the compiled kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from core.fusion.cpu.layer import FusedLayer
from core.fusion.rotary import FusedRotation, Rotation, rotation
from core.fusion.visitor import AttentionSite
from core.kernels.cpu.bindings import Kernels


def fused_rotation(kernels: Kernels, original: Rotation) -> Rotation:
    """Return a replacement for ``original``, to which it passes calls of unusual shapes."""

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
        return kernels.rotary(q, cos, sin), kernels.rotary(k, cos, sin)

    return rotate


def _is_usual(states: torch.Tensor, cos: torch.Tensor) -> bool:
    """Whether these are float32 ``[1, heads, tokens, n]`` of which all dimensions are rotated."""
    return (
        states.dim() == 4
        and states.dtype is torch.float32
        and states.shape[0] == states.stride(3) == 1
        and cos.shape == (1, states.shape[2], states.shape[3])
    )


def rotary_pattern(kernels: Kernels, site: AttentionSite) -> Iterator[FusedRotation]:
    """RoPE by the compiled kernel, in layers that are not fused as a whole."""
    if not isinstance(site.layer, FusedLayer):
        yield from rotation(site, functools.partial(fused_rotation, kernels))
