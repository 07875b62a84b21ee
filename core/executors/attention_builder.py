"""The kernels' arguments of a layer's attention: of heads, and of a latent."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import torch

from core.executors.buffers import Widths
from core.executors.role_packer import RolePacker
from core.executors.rows import halves, split, taken
from core.kernels.cpu.linear import PackedWeight
from core.kernels.cpu.structures import Latent, LayerCall, Matrix, NormCall
from core.models.spec import Attention, HeadNorm, LatentAttention, Shape
from core.weights.roles import Weight


class LatentBuilder:
    """Packs the weights of a layer's latent attention, but for its output."""

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


class AttentionBuilder:
    """Packs the weights of a layer's attention, but for its output."""

    def __init__(
        self, of: RolePacker, mixer: Attention, index: int, shapes: Mapping[str, Shape]
    ) -> None:
        self._of, self._mixer, self._index, self._shapes = of, mixer, index, shapes

    def fill(self, call: LayerCall) -> Widths:
        """Set the arguments; returns the columns of the buffers that they need."""
        mixer, projections = self._mixer, self._projections()
        call.projections = Matrix.of(projections)
        call.num_heads, call.num_kv_heads = mixer.num_heads, mixer.num_kv_heads
        call.head_dim, call.value_dim = mixer.head_dim, mixer.value_dim
        call.applies_rope = int(mixer.rope is not None)
        self._set_heads(call)
        changes = (mixer.rope, mixer.head_norm, mixer.clip, mixer.temperature)
        widths = {
            "projected": projections.num_rows,
            "attended": mixer.num_heads * mixer.value_dim,
        }
        if any(change is not None for change in changes) or call.values_are_keys:
            widths["query"] = mixer.num_heads * mixer.head_dim
            widths["key"] = mixer.num_kv_heads * mixer.head_dim
        return widths

    def _projections(self) -> PackedWeight:
        """Queries, keys and values. Neighbouring pairs of RoPE become halves."""
        mixer = self._mixer
        heads = [mixer.num_heads, mixer.num_kv_heads]
        if mixer.keys_of is not None:
            role, heads = "query", heads[:1]
        else:
            role = "qk" if mixer.values_are_keys else "qkv"
        sizes = [count * mixer.head_dim for count in heads]
        if role == "qkv":
            sizes.append(mixer.num_kv_heads * mixer.value_dim)
        parts = self._of.matrices(role, self._index, self._shapes[role])
        parts = split(parts, sizes) if len(parts) > 1 else parts
        bias = self._of.bias(role, self._index, self._shapes[role]) if mixer.has_bias else None
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            orders = [halves(mixer.rope, mixer.head_dim, count) for count in heads]
            if role == "qkv":
                orders.append(torch.arange(sizes[2]))
            pairs = zip(split(parts, sizes), orders, strict=True)
            parts = [taken(part, order) for part, order in pairs]
            if bias is not None:
                pieces = zip(torch.split(bias, sizes), orders, strict=True)
                bias = torch.cat([piece[order] for piece, order in pieces])
        return self._of.stack(parts, bias)

    def _set_heads(self, call: LayerCall) -> None:
        """Set the operations on queries, keys and values before attention."""
        mixer, norm = self._mixer, self._mixer.head_norm
        call.clip = mixer.clip or 0.0
        call.reuses_keys = int(mixer.keys_of is not None)
        if mixer.temperature is not None:
            call.temperature = mixer.temperature.strength
            call.temperature_length = mixer.temperature.length
            call.temperature_first = mixer.temperature.first
        if norm is not None:
            call.joins_heads, call.norms_each = int(norm.over == "all"), int(norm.over == "each")
            call.norms_rotated = int(norm.after_rope)
            call.query_norm = self._head_norm(norm, "query_norm", mixer.num_heads)
        if mixer.keys_of is not None:
            return
        if norm is not None:
            call.key_norm = self._head_norm(norm, "key_norm", mixer.num_kv_heads)
        call.values_are_keys = int(mixer.values_are_keys)
        call.value_scale = 0.0 if mixer.value_scale == 1.0 else mixer.value_scale
        shape = (mixer.value_dim,)
        call.value_norm = self._of.norm(mixer.value_norm, "value_norm", self._index, shape)

    def _head_norm(self, norm: HeadNorm, role: str, heads: int) -> NormCall:
        mixer, order = self._mixer, None
        num_rows = 1 if norm.over == "head" else heads
        shape = (heads, mixer.head_dim) if norm.over == "each" else (num_rows * mixer.head_dim,)
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            order = halves(mixer.rope, mixer.head_dim, num_rows)
        return self._of.norm(norm.norm, role, self._index, shape, order=order)
