"""check_supported: the parts of a spec that the compiled kernels do not compute."""

from __future__ import annotations

from core.kernels.cpu.linear import Epilogue
from core.models.spec import (
    Attention,
    DecoderSpec,
    FeedForward,
    Layer,
    Mixture,
    Undescribed,
)

_PLAIN = {
    "gelu": Epilogue.GELU,
    "relu": Epilogue.RELU,
    "relu2": Epilogue.RELU2,
    "silu": Epilogue.SILU,
    "xielu": Epilogue.XIELU,
    "gelu_new": Epilogue.GELU_TANH,
    "gelu_pytorch_tanh": Epilogue.GELU_TANH,
}
_GATED = {
    "gelu": Epilogue.GELU_GATE,
    "relu": Epilogue.RELU_GATE,
    "relu2": Epilogue.RELU2_GATE,
    "silu": Epilogue.SILU_GATE,
    "gelu_new": Epilogue.GELU_TANH_GATE,
    "gelu_pytorch_tanh": Epilogue.GELU_TANH_GATE,
}
_CLAMPED = (1.702, 7.0)
"""Slope and limit of ``clamped_gate`` in source/linear/epilogue.h."""


def epilogue_of(spec: FeedForward) -> Epilogue:
    """The function that the kernel applies to the first product. Raises Undescribed."""
    activation = spec.activation
    if activation.limit is not None:
        if not spec.is_gated or (activation.alpha, activation.limit) != _CLAMPED:
            raise unsupported("this limit of an activation")
        return Epilogue.CLAMPED_GATE
    known = _GATED if spec.is_gated else _PLAIN
    if activation.name not in known:
        raise unsupported(f"{'a gate of' if spec.is_gated else 'the activation'} {activation.name}")
    return known[activation.name]


def check_supported(spec: DecoderSpec) -> None:
    """Raise Undescribed for what the compiled kernels do not compute."""
    for layer in dict.fromkeys(spec.layers):
        _check_layer(layer)


def _check_layer(layer: Layer) -> None:
    is_added_later = layer.post_feed_forward is not None or layer.residual_scale != 1.0
    if layer.has_output_scale and not is_added_later and layer.layer_input is None:
        raise unsupported("a scale of a layer's output without a post-norm")
    if layer.residual_scale == 0.0:
        raise unsupported("layers that add nothing")
    if isinstance(layer.mixer, Attention):
        _check_attention(layer.mixer)
    if not isinstance(layer.feed_forward, Mixture):
        epilogue_of(layer.feed_forward)
        return
    for expert in (layer.feed_forward.expert, layer.feed_forward.shared):
        if expert is not None and epilogue_of(expert) is Epilogue.XIELU:
            raise unsupported("experts with xielu")


def _check_attention(mixer: Attention) -> None:
    if mixer.values_are_keys and mixer.keys_of is None:
        if mixer.rope is not None and mixer.rope.pairs == "neighbours":
            raise unsupported("keys as values whose rotated columns are neighbours")
        if mixer.value_dim != mixer.head_dim:
            raise unsupported("keys as values of another size")


def unsupported(what: str) -> Undescribed:
    """The error for what the kernels do not compute."""
    return Undescribed(f"the compiled kernels do not compute {what}")
