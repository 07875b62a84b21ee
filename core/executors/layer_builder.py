"""LayerBuilder: the kernels' arguments of a layer."""

from __future__ import annotations

import ctypes
from typing import assert_never

from core.executors.attention_builder import AttentionBuilder, LatentBuilder
from core.executors.attention_shapes import layer_spec
from core.executors.buffers import Workspace
from core.executors.feed_builder import FeedBuilder
from core.executors.role_packer import RolePacker
from core.executors.supported import unsupported
from core.kernels.cpu.structures import LayerCall, Matrix, NormCall
from core.kv.layer_spec import LayerSpec
from core.models.spec import Attention, FeedForward, LatentAttention, Layer, Mixture, Norm


class LayerBuilder:
    """Packs one layer."""

    def __init__(self, of: RolePacker, hidden: int, layer: Layer, index: int) -> None:
        self._of, self._layer, self._index = of, layer, index
        self._hidden = hidden
        self._shapes = dict(layer.tensors(self._hidden))
        self._feed = FeedBuilder(of, index, self._shapes)
        self._mixer: AttentionBuilder | LatentBuilder
        match layer.mixer:
            case Attention():
                self._mixer = AttentionBuilder(of, layer.mixer, index, self._shapes)
                self._has_output_bias = layer.mixer.has_output_bias
            case LatentAttention():
                self._mixer = LatentBuilder(of, layer.mixer, index, self._shapes)
                self._has_output_bias = layer.mixer.has_bias
            case _:
                assert_never(layer.mixer)

    def layer_spec(self) -> LayerSpec:
        """The layer's attention for a backend and the KV cache, with its sinks."""
        sinks = None
        if "sinks" in self._shapes:
            sinks = self._of.reader.whole("sinks", self._index, self._shapes["sinks"])
        return layer_spec(self._layer.mixer, sinks)

    def call(self, workspace: Workspace) -> LayerCall:
        """The arguments of the layer."""
        layer, shape = self._layer, self._shapes["output"]
        call = LayerCall(
            first_norm=self._norm(layer.pre_mixer, "pre_mixer"),
            second_norm=self._norm(layer.pre_feed_forward, "pre_feed_forward"),
            post_mixer=self._norm(layer.post_mixer, "post_mixer"),
            post_feed_forward=self._norm(layer.post_feed_forward, "post_feed_forward"),
            residual_scale=layer.residual_scale,
            is_parallel=int(layer.is_parallel),
        )
        widths = {"normed": self._hidden, "hidden": self._hidden, **self._mixer.fill(call)}
        output = self._of.matrix("output", self._index, shape, self._has_output_bias)
        call.output = Matrix.of(output)
        if isinstance(layer.feed_forward, Mixture):
            call.mixture = ctypes.pointer(self._feed.mixture(layer.feed_forward))
        else:
            widths["inner"] = self._feed.fill(call, layer.feed_forward)
        if layer.layer_input is not None:
            self._set_input(call, layer.layer_input)
            widths["inner"] = max(widths.get("inner", 0), layer.layer_input.size)
        if layer.has_output_scale:
            shape = self._shapes["output_scale"]
            call.output_scale = float(self._of.reader.whole("output_scale", self._index, shape))
            if call.output_scale == 0:
                raise unsupported("a layer whose output is scaled by 0")
        call.step = ctypes.addressof(workspace.step(layer.mixer.rope, widths))
        return call

    def _norm(self, spec: Norm | None, role: str) -> NormCall:
        return self._of.norm(spec, role, self._index, (self._hidden,))

    def _set_input(self, call: LayerCall, spec: FeedForward) -> None:
        call.input_up, call.input_down = self._feed.dense(spec, "input_")
        call.input_norm = self._norm(self._layer.input_norm, "input_norm")
        call.first_input = self._index * spec.size
