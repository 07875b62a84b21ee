"""AttentionBuilder: the kernels' arguments of softmax attention."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from core.executors.buffers import Widths
from core.executors.role_packer import RolePacker
from core.executors.rows import halves, split, taken
from core.kernels.cpu.layer import LayerCall, Matrix
from core.kernels.cpu.layer import Norm as NormCall
from core.kernels.cpu.linear import PackedWeight
from core.models.spec import Attention, HeadNorm, Shape


class AttentionBuilder:
    """Packs what a layer of attention has up to its output."""

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
        """What is done with queries, keys and values before attention."""
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
