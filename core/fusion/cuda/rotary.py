"""RoPE as one operation, with the norms of heads in it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from core.fusion.cuda.ops import TritonOps
from core.fusion.rotary import FusedRotation, Rotation, rotation
from core.fusion.visitor import AttentionSite
from core.kernels.triton.head_norm import HeadNorm


def fused_rotation(ops: TritonOps, original: Rotation, norm: HeadNorm | None = None) -> Rotation:
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
    """RoPE as one operation."""
    return rotation(site, functools.partial(fused_rotation, ops))
