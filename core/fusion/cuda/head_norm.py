"""The norms of each head's query and key as a part of RoPE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from core.fusion.cuda.norm import FusedRMSNorm
from core.fusion.cuda.ops import TritonOps
from core.fusion.cuda.rotary import fused_rotation
from core.fusion.patterns import HEAD_NORMS
from core.fusion.proof import NUM_ROWS, Proof, left_out, output_of
from core.fusion.rotary import applies_rope, install_rotation, original_rotation
from core.fusion.visitor import AttentionSite, Place
from core.hook.interface import routed
from core.kernels.triton.head_norm import HeadNorm


class HeadNormCandidate:
    """A candidate for attention that normalises query and key right before it applies RoPE."""

    counts: ClassVar[Mapping[str, int]] = {"head norm": 1}

    def __init__(
        self, site: AttentionSite, norm: HeadNorm, ops: TritonOps, hidden_size: int
    ) -> None:
        attention = site.attention
        self._attention: Any = attention
        self._head_dim = site.spec.head_dim
        self._hidden_size = hidden_size
        self._rotation = fused_rotation(ops, original_rotation(attention), norm)
        self._places = [Place(attention, name) for name in HEAD_NORMS]

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate."""
        hidden = proof.random(1, NUM_ROWS, self._hidden_size)
        cos, sin = (proof.random(1, NUM_ROWS, self._head_dim) for _ in range(2))
        expected = _query_and_key(self._attention, hidden, cos, sin)
        norms = [place.module for place in self._places]
        forward = vars(self._attention).get("forward")
        self.install()
        actual = _query_and_key(self._attention, hidden, cos, sin)
        for place, norm in zip(self._places, norms, strict=True):
            place.put(norm)
        if forward is None:
            del self._attention.forward
        else:
            self._attention.forward = forward
        return len(expected) == len(actual) > 0 and all(map(proof.is_close, expected, actual))

    def install(self) -> None:
        """See Candidate."""
        for place in self._places:
            place.put(nn.Identity())
        install_rotation(self._attention, self._rotation)


def head_norm_pattern(
    ops: TritonOps, hidden_size: int, site: AttentionSite
) -> Iterator[HeadNormCandidate]:
    """A candidate for attention whose query and key have equal RMSNorms over each head."""
    norms = [getattr(site.attention, name, None) for name in HEAD_NORMS]
    norm = _head_norm(norms[0], norms[1], site.spec.head_dim)
    if norm is not None and applies_rope(site.attention):
        yield HeadNormCandidate(site, norm, ops, hidden_size)


def _head_norm(query_norm: object, key_norm: object, head_dim: int) -> HeadNorm | None:
    if not isinstance(query_norm, FusedRMSNorm) or not isinstance(key_norm, FusedRMSNorm):
        return None
    query_weight, *query_numbers = query_norm.weight_eps_offset
    key_weight, *key_numbers = key_norm.weight_eps_offset
    if not len(query_weight) == len(key_weight) == head_dim or query_numbers != key_numbers:
        return None
    return HeadNorm(query_weight, key_weight, *query_numbers)


def _query_and_key(
    attention: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> list[torch.Tensor]:
    """Call the module; return the query and the key that it passes to its attention function.

    Empty if the call fails.
    """
    found: list[torch.Tensor] = []

    def record(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object
    ) -> torch.Tensor:
        found.extend((query.clone(), key.clone()))
        return value.new_zeros(*query.shape[:2], value.shape[2])

    rope = {"position_embeddings": (cos, sin)}
    with routed([attention], record):
        output = output_of(attention, hidden, **rope, **left_out(attention, rope))
        return [] if output is None else found
