"""LatentBuilder: the kernels' arguments of latent attention."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import torch

from core.executors.buffers import Widths
from core.executors.role_packer import RolePacker
from core.executors.rows import halves, taken
from core.kernels.cpu.layer import Latent, LayerCall, Matrix
from core.kernels.cpu.linear import PackedWeight
from core.models.spec import LatentAttention, Shape
from core.weights.roles import Weight


class LatentBuilder:
    """Packs what a layer of latent attention has up to its output."""

    def __init__(
        self, of: RolePacker, mixer: LatentAttention, index: int, shapes: Mapping[str, Shape]
    ) -> None:
        self._of, self._mixer, self._index, self._shapes = of, mixer, index, shapes
        self._head_dim = mixer.plain_dim + mixer.rope_dim

    def fill(self, call: LayerCall) -> Widths:
        """Set the arguments; returns the columns of the buffers that they need."""
        mixer, of, i = self._mixer, self._of, self._index
        projections = self._projections()
        latent = Latent(
            query_rank=mixer.query_rank or 0,
            kv_rank=mixer.kv_rank,
            plain_dim=mixer.plain_dim,
            kv_norm=of.norm(mixer.norm, "kv_norm", i, (mixer.kv_rank,)),
            kv_up=Matrix.of(of.matrix("kv_up", i, self._shapes["kv_up"], bias=False)),
        )
        if mixer.query_rank is not None:
            parts, _ = self._rows("query_up", self._order_of_queries(), has_bias=False)
            latent.query_norm = of.norm(mixer.norm, "query_norm", i, (mixer.query_rank,))
            latent.query_up = Matrix.of(of.stack(parts, None))
        call.latent, call.projections = ctypes.pointer(latent), Matrix.of(projections)
        call.num_heads = call.num_kv_heads = mixer.num_heads
        call.head_dim, call.value_dim = self._head_dim, mixer.value_dim
        call.applies_rope = 1
        return {
            "projected": projections.num_rows,
            "query": mixer.num_heads * self._head_dim,
            "key": mixer.num_heads * self._head_dim,
            "attended": mixer.num_heads * mixer.value_dim,
            "expanded": mixer.num_heads * (mixer.plain_dim + mixer.value_dim),
        }

    def _projections(self) -> PackedWeight:
        """The latent of queries, or queries; that of keys and values; and the shared columns."""
        mixer = self._mixer
        if mixer.query_rank is None:
            first, first_bias = self._rows("query", self._order_of_queries(), has_bias=False)
        else:
            first, first_bias = self._rows("query_down", None, has_bias=mixer.has_bias)
        order = halves(mixer.rope, mixer.rope_dim, 1) + mixer.kv_rank
        order = torch.cat([torch.arange(mixer.kv_rank), order])
        rest, bias = self._rows("kv_down", order, has_bias=mixer.has_bias)
        if bias is not None:
            zeros = torch.zeros(sum(len(part) for part in first))
            bias = torch.cat([zeros if first_bias is None else first_bias, bias])
        return self._of.stack([*first, *rest], bias)

    def _order_of_queries(self) -> torch.Tensor:
        mixer = self._mixer
        own = halves(mixer.rope, mixer.rope_dim, 1) + mixer.plain_dim
        own = torch.cat([torch.arange(mixer.plain_dim), own])
        return (own + self._head_dim * torch.arange(mixer.num_heads)[:, None]).flatten()

    def _rows(
        self, role: str, order: torch.Tensor | None, *, has_bias: bool
    ) -> tuple[list[Weight], torch.Tensor | None]:
        """A matrix and its bias; ``order`` is that of halves, for neighbours alone."""
        shape = self._shapes[role]
        parts = self._of.matrices(role, self._index, shape)
        bias = self._of.bias(role, self._index, shape) if has_bias else None
        if order is None or self._mixer.rope.pairs == "halves":
            return parts, bias
        [part] = parts
        return [taken(part, order)], None if bias is None else bias[order]
