"""What of a spec the compiled kernels compute."""

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
"""Slope and limit of ``clamped_gate`` in source/epilogue.h."""


def epilogue_of(spec: FeedForward) -> Epilogue:
    """What the kernel does with the first product. Raises Undescribed."""
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
    if spec.layer_input is not None:
        raise unsupported("inputs of layers")
    for layer in dict.fromkeys(spec.layers):
        _check_layer(layer)


def _check_layer(layer: Layer) -> None:
    if layer.layer_input is not None or layer.has_output_scale:
        raise unsupported("inputs and scales of layers")
    if not isinstance(layer.mixer, Attention):
        raise unsupported("latent attention")
    if layer.mixer.keys_of is not None or layer.mixer.values_are_keys:
        raise unsupported("keys of other layers, or keys as values")
    if not isinstance(layer.feed_forward, Mixture):
        epilogue_of(layer.feed_forward)
        return
    for expert in (layer.feed_forward.expert, layer.feed_forward.shared):
        if expert is not None and epilogue_of(expert) is Epilogue.XIELU:
            raise unsupported("experts with xielu")


def unsupported(what: str) -> Undescribed:
    """The error for what the kernels do not compute."""
    return Undescribed(f"the compiled kernels do not compute {what}")
