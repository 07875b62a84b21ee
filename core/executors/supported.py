"""What of a spec the compiled kernels compute."""

from __future__ import annotations

from core.kernels.cpu.linear import Epilogue
from core.models.spec import (
    Attention,
    DecoderSpec,
    FeedForward,
    Layer,
    Mixer,
    Mixture,
    Undescribed,
)

_PLAIN = {
    "silu": Epilogue.SILU,
    "gelu_new": Epilogue.GELU_TANH,
    "gelu_pytorch_tanh": Epilogue.GELU_TANH,
}
_GATED = {"silu": Epilogue.SILU_GATE, "gelu_pytorch_tanh": Epilogue.GELU_TANH_GATE}
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
    if spec.embedding_norm is not None:
        raise unsupported("a norm of the embedding")
    if spec.layer_input is not None:
        raise unsupported("inputs of layers")
    if spec.logit_cap is not None:
        raise unsupported("a cap of logits")
    if len({layer.mixer.rope for layer in spec.layers if layer.mixer.rope is not None}) > 1:
        raise unsupported("layers of different RoPE")
    for layer in dict.fromkeys(spec.layers):
        _check_layer(layer)


def _check_layer(layer: Layer) -> None:
    if layer.pre_mixer is None or layer.pre_feed_forward is None or layer.is_parallel:
        raise unsupported("layers without both pre-norms, one after the other")
    if layer.post_mixer is not None or layer.post_feed_forward is not None:
        raise unsupported("post-norms")
    if layer.residual_scale != 1.0:
        raise unsupported("a factor of what layers add")
    if layer.layer_input is not None or layer.has_output_scale:
        raise unsupported("inputs and scales of layers")
    _check_mixer(layer.mixer)
    if isinstance(layer.feed_forward, Mixture):
        return _check_mixture(layer.feed_forward)
    epilogue_of(layer.feed_forward)
    if layer.feed_forward.is_gated and layer.feed_forward.has_bias:
        raise unsupported("biases of a gate")
    return None


def _check_mixer(mixer: Mixer) -> None:
    if not isinstance(mixer, Attention):
        raise unsupported("latent attention")
    norm = mixer.head_norm
    if norm is not None and (norm.after_rope or norm.over == "each"):
        raise unsupported("this norm of heads")
    others = (mixer.value_norm, mixer.clip, mixer.temperature, mixer.keys_of)
    if any(x is not None for x in others) or mixer.value_scale != 1.0 or mixer.values_are_keys:
        raise unsupported("what this attention does with values, or before the rotation")


def _check_mixture(mixture: Mixture) -> None:
    router = mixture.router
    if router.score != "softmax" or router.has_choice_bias or router.num_groups > 1:
        raise unsupported("a router by other than a softmax")
    if router.scale != 1.0 or router.weighs_input:
        raise unsupported("this router's weights")
    epilogue_of(mixture.expert)
    if mixture.shared is not None:
        epilogue_of(mixture.shared)


def unsupported(what: str) -> Undescribed:
    """The error for what the kernels do not compute."""
    return Undescribed(f"the compiled kernels do not compute {what}")
