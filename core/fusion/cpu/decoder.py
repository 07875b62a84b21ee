"""A decoder's forward pass, all layers in one call, without what transformers does around them.

Masks, caches and recorded states serve callers that want more than the last hidden states of packed
tokens. They would cost time in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from core.fusion.cpu.layer import ROTATION, FusedLayer
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import Attention
from core.kernels.cpu.lent import LentCore
from core.kernels.cpu.library import Kernels
from core.model.attention_interface import kernel_call_of, routed
from core.model.causal_attention import causal_attention
from core.model.proof.few_layers import first_layers

_DECODERS = (
    ("embed_tokens", None, "layers", "norm", "rotary_emb"),
    ("wte", "wpe", "h", "ln_f", None),
)
"""Names of: token embedding, position embedding, layers, last norm, RoPE angles."""


@dataclass(frozen=True, slots=True)
class DecoderOutput:
    """The part of transformers' output that a language model's head reads."""

    last_hidden_state: torch.Tensor  # [1, num_tokens, hidden_size]
    past_key_values: None = None
    hidden_states: None = None
    attentions: None = None
    cross_attentions: None = None
    router_logits: None = None

    def __getitem__(self, index: int) -> torch.Tensor:
        """Index the tuple of fields that are not None."""
        return (self.last_hidden_state,)[index]


class FusedDecoder:
    """Replaces a decoder's ``forward``. Core thread only.

    It passes calls that need more than packed tokens and their positions to the original. Where
    attention is a kernel, all layers are one call: threads start once, and other Python threads run
    meanwhile. Where it is not, as in a benchmark that times attention, layers are called in turn.
    """

    def __init__(self, kernels: Kernels, decoder: nn.Module, original: Callable[..., Any]) -> None:
        """``decoder`` has only fused layers and known modules around them."""
        self._kernels = kernels
        names = _names(decoder)
        assert names is not None
        children = dict(decoder.named_children())
        parts: list[Any] = [None if name is None else children[name] for name in names]
        self._embedding, self._position_embedding, self.layers, self._norm, self._angles = parts
        self._original = original
        self.begin: Callable[[], object] = lambda: None
        """Called before the layers are computed: other Python threads may run from then on."""
        self.lent: LentCore | None = None
        """A core that may be lent meanwhile."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the last hidden states."""
        ids = args[0] if len(args) == 1 else kwargs.get("input_ids")
        positions = kwargs.get("position_ids")
        if ids is None or positions is None or len(args) > 1 or _needs_more(kwargs):
            return self._original(*args, **kwargs)
        x = self._embedding(ids)
        if self._position_embedding is not None:
            x = x + self._position_embedding(positions)
        angles = None if self._angles is None else self._angles(x, position_ids=positions)
        attentions = [kernel_call_of(layer.attention) for layer in self.layers]
        if None not in attentions:
            return DecoderOutput(self._norm(self._together(x, angles, attentions)))
        rope = {} if angles is None else {ROTATION: angles}
        self.begin()
        for layer in self.layers:
            x = layer(x, **rope)
        return DecoderOutput(self._norm(x))

    def _together(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor] | None,
        attentions: list[int | None],
    ) -> torch.Tensor:
        """Compute all layers in one call of the kernel."""
        y = x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        layers = list(self.layers)
        used = {id(buffers): buffers for buffers in (layer.use(x.shape[1]) for layer in layers)}
        rotation = [] if angles is None else layers[0].rotation(angles)
        for buffers in used.values():
            buffers.point(y, y, buffers.attended)
            if rotation:
                buffers.rotate_by(*rotation)
        count = len(layers)
        addresses = c_void_p * count
        calls = addresses(*(layer.address for layer in layers)), addresses(*attentions)
        lent = None if self.lent is None else self.lent.address
        self.begin()
        self._kernels.layers(*calls, count, lent)
        return y


class DecoderCandidate:
    """A candidate for the forward pass of a decoder."""

    counts: ClassVar[Mapping[str, int]] = {"decoder": 1}

    def __init__(self, kernels: Kernels, decoder: nn.Module, attention: Attention) -> None:
        self._decoder = decoder
        self._attention = attention
        self._fused = FusedDecoder(kernels, decoder, decoder.forward)

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate. Computes the first layers, up to one with each attention."""
        ids = torch.arange(NUM_ROWS)[None]
        batch = {"input_ids": ids, "position_ids": ids + 2, "use_cache": False}
        specs = dict(self._attention)
        attention = routed(
            specs, lambda q, k, v, module, _kwargs: causal_attention(q, k, v, specs[module])
        )
        with attention, first_layers(self._fused.layers, self._num_proved()):
            expected = output_of(self._decoder, **batch)
            actual = output_of(self._fused, **batch)  # angles may need other arguments
        return (
            expected is not None
            and actual is not None
            and proof.is_close(expected.last_hidden_state, actual.last_hidden_state)
        )

    def _num_proved(self) -> int:
        specs = [spec for _, spec in self._attention]
        return max(specs.index(spec) for spec in specs) + 1

    def install(self) -> None:
        """See Candidate."""
        self._decoder.forward = self._fused


def decoder_pattern(
    kernels: Kernels, attention: Attention, model: nn.Module
) -> Iterator[DecoderCandidate]:
    """A candidate for the model's decoder, if all its layers are fused."""
    decoder = getattr(model, getattr(model, "base_model_prefix", ""), None)
    if isinstance(decoder, nn.Module) and _names(decoder) is not None:
        yield DecoderCandidate(kernels, decoder, attention)


def fused_decoder(model: nn.Module) -> FusedDecoder | None:
    """Return what computes the model's decoder, if it was fused."""
    decoder = getattr(model, getattr(model, "base_model_prefix", ""), None)
    forward = getattr(decoder, "forward", None)
    return forward if isinstance(forward, FusedDecoder) else None


def _names(decoder: nn.Module) -> tuple[str | None, ...] | None:
    """Names of the decoder's modules, if its layers are fused and nothing else is around them."""
    parts = {
        name: module
        for name, module in decoder.named_children()
        if not isinstance(module, nn.Dropout)
    }
    for names in _DECODERS:
        layers: Any = parts.get(str(names[2]))
        if parts.keys() == {name for name in names if name is not None} and all(
            isinstance(layer, FusedLayer) for layer in layers
        ):
            return names
    return None


def _needs_more(arguments: dict[str, Any]) -> bool:
    return any(
        value is not None and value is not False
        for name, value in arguments.items()
        if name not in ("input_ids", "position_ids")
    )
