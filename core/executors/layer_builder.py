"""LayerBuilder: the kernels' arguments of a layer."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from core.executors.attention_shapes import layer_spec
from core.executors.buffers import Workspace
from core.executors.feed_builder import FeedBuilder
from core.executors.rows import halves, split, taken
from core.executors.supported import unsupported
from core.kernels.cpu.layer import LayerCall, Matrix
from core.kernels.cpu.layer import Norm as NormCall
from core.kernels.cpu.linear import PackedWeight
from core.layer_spec import LayerSpec
from core.models import spec as specs
from core.models.spec import Attention, Layer

if TYPE_CHECKING:
    from core.executors.layer_calls import CallBuilder


class LayerBuilder:
    """Packs one layer."""

    def __init__(self, of: CallBuilder, layer: Layer, index: int) -> None:
        if not isinstance(layer.mixer, Attention):
            raise unsupported("latent attention")
        self._of, self._layer, self._index = of, layer, index
        self._mixer = layer.mixer
        self._hidden = of.spec.hidden_size
        self._shapes = dict(layer.tensors(self._hidden))

    def layer_spec(self) -> LayerSpec:
        """What attention and the KV cache need."""
        mixer, sinks = self._mixer, None
        if mixer.has_sinks:
            sinks = self._of.reader.whole("sinks", self._index, self._shapes["sinks"])
        return layer_spec(mixer, sinks)

    def call(self, workspace: Workspace) -> LayerCall:
        """The arguments of the layer."""
        layer, mixer, hidden = self._layer, self._mixer, self._hidden
        projections = self._projections()
        call = LayerCall(
            first_norm=self._norm(layer.pre_mixer, "pre_mixer"),
            second_norm=self._norm(layer.pre_feed_forward, "pre_feed_forward"),
            post_mixer=self._norm(layer.post_mixer, "post_mixer"),
            post_feed_forward=self._norm(layer.post_feed_forward, "post_feed_forward"),
            residual_scale=layer.residual_scale,
            is_parallel=int(layer.is_parallel),
            projections=Matrix.of(projections),
            output=Matrix.of(self._matrix("output", mixer.has_output_bias)),
            num_heads=mixer.num_heads,
            num_kv_heads=mixer.num_kv_heads,
            head_dim=mixer.head_dim,
            value_dim=mixer.value_dim,
            applies_rope=int(mixer.rope is not None),
        )
        self._set_heads(call)
        inner, feed = 0, FeedBuilder(self._of, self._index, self._shapes)
        if isinstance(layer.feed_forward, specs.Mixture):
            call.mixture = ctypes.pointer(feed.mixture(layer.feed_forward))
        else:
            (call.up, call.down), inner = feed.dense(layer.feed_forward), layer.feed_forward.size
        query, key = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
        changes = (mixer.rope, mixer.head_norm, mixer.clip, mixer.temperature)
        is_changed = any(change is not None for change in changes)
        copied = (query, key) if is_changed else (0, 0)
        attended = mixer.num_heads * mixer.value_dim
        widths = (hidden, projections.num_rows, *copied, hidden, inner, attended)
        call.step = ctypes.addressof(workspace.step(mixer.rope, widths))
        return call

    def _norm(self, spec: specs.Norm | None, role: str) -> NormCall:
        return self._of.norm(spec, role, self._index, (self._hidden,))

    def _matrix(self, role: str, bias: bool) -> PackedWeight:
        return self._of.matrix(role, self._index, self._shapes[role], bias)

    def _projections(self) -> PackedWeight:
        """Queries, keys and values. Neighbouring pairs of RoPE become halves."""
        mixer, role = self._mixer, "qkv"
        sizes = [mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim]
        parts = self._of.reader.matrices(role, self._index, self._shapes[role])
        bias = self._of.bias(role, self._index, self._shapes[role]) if mixer.has_bias else None
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            query, key, value = split(parts, [*sizes, mixer.num_kv_heads * mixer.value_dim])
            orders = [halves(mixer, mixer.num_heads), halves(mixer, mixer.num_kv_heads)]
            parts = [taken(query, orders[0]), taken(key, orders[1]), value]
            if bias is not None:
                rest = torch.arange(sum(sizes), len(bias))
                bias = bias[torch.cat([orders[0], orders[1] + sizes[0], rest])]
        return self._of.stack(parts, bias)

    def _set_heads(self, call: LayerCall) -> None:
        """What is done with queries, keys and values before attention."""
        mixer, norm = self._mixer, self._mixer.head_norm
        call.clip, call.value_scale = mixer.clip or 0.0, mixer.value_scale
        if mixer.value_scale == 1.0:
            call.value_scale = 0.0  # nothing to do
        call.value_norm = self._of.norm(
            mixer.value_norm, "value_norm", self._index, (mixer.value_dim,)
        )
        if mixer.temperature is not None:
            call.temperature = mixer.temperature.strength
            call.temperature_length = mixer.temperature.length
            call.temperature_first = mixer.temperature.first
        if norm is not None:
            call.joins_heads, call.norms_each = int(norm.over == "all"), int(norm.over == "each")
            call.norms_rotated = int(norm.after_rope)
            call.query_norm = self._head_norm(norm, "query_norm", mixer.num_heads)
            call.key_norm = self._head_norm(norm, "key_norm", mixer.num_kv_heads)

    def _head_norm(self, norm: specs.HeadNorm, role: str, heads: int) -> NormCall:
        mixer, order = self._mixer, None
        num_rows = 1 if norm.over == "head" else heads
        shape = (heads, mixer.head_dim) if norm.over == "each" else (num_rows * mixer.head_dim,)
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            order = halves(mixer, num_rows)
        return self._of.norm(norm.norm, role, self._index, shape, order=order)
