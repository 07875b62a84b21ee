"""A decoder's forward pass, all layers in one call, without what transformers does around them.

Masks, caches and recorded states serve callers that want more than the last hidden states of packed
tokens. They would cost time in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import Array, c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from core.executors.angles import AngleTable
from core.fusion.cpu.layer import ROTATION, Buffers, FusedLayer
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import Attention, NotRecognisedError
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.lent import LentCore
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
    """The part of transformers' output that a language model's head reads.

    Other fields, of whatever names, are None: the cache, attention weights, router logits.
    """

    last_hidden_state: torch.Tensor  # [1, num_tokens, hidden_size]

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):  # a protocol of Python
            raise AttributeError(name)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Index the tuple of fields that are not None."""
        return (self.last_hidden_state,)[index]


@dataclass(frozen=True, slots=True)
class Links:
    """The layers of a decoder and the attention that is attached, as the kernel reads them.

    ``calls`` and ``attentions`` have the address of each of the ``count`` layers' arguments.
    ``offer`` is the attention that they were made for. ``angles`` are those of RoPE; another
    attention may come with other frequencies.
    """

    offer: object
    count: int
    calls: Array[c_void_p]
    attentions: Array[c_void_p]
    buffers: list[Buffers]
    angles: AngleTable | None

    def point(self, num_tokens: int, x: int, y: int, rotation: tuple[int, int, int]) -> None:
        """Set the addresses of input and output, and those of cosines and sines and their columns.

        The caller keeps alive what is there.
        """
        for buffers in self.buffers:
            buffers.fit(num_tokens)
            step = buffers.step
            step.x, step.y = x, y
            step.cos, step.sin, step.rotated = rotation


class FusedDecoder:
    """Replaces a decoder's ``forward``. Core thread only.

    It passes calls that need more than packed tokens and their positions to the original. Where
    attention is a kernel, all layers are one call: threads start once, and other Python threads run
    meanwhile. Where it is not, layers are called in turn.
    """

    def __init__(self, kernels: Kernels, decoder: nn.Module, original: Callable[..., Any]) -> None:
        """``decoder`` has only fused layers and known modules around them."""
        self._kernels = kernels
        names = _names(decoder)
        assert names is not None
        children = dict(decoder.named_children())
        parts: list[Any] = [None if name is None else children[name] for name in names]
        self.embedding, self.position_embedding, self.layers, self.norm, self._angles = parts
        self._first: FusedLayer = self.layers[0]
        self._first_attention = self._first.attention  # of a module, torch looks it up slowly
        self._original = original
        self._links: Links | None = None
        self.begin: Callable[[], object] = lambda: None
        """Called before the layers are computed: other Python threads may run from then on."""
        self.lent: LentCore | None = None
        """A core that may be lent meanwhile."""
        self.times: AbstractContextManager[int | None] = nullcontext()
        """Surrounds the call that computes all layers; gives the memory of StageTimes, or None."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the last hidden states."""
        ids = args[0] if len(args) == 1 else kwargs.get("input_ids")
        positions = kwargs.get("position_ids")
        if ids is None or positions is None or len(args) > 1 or _needs_more(kwargs):
            return self._original(*args, **kwargs)
        x = self.embedding(ids)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        angles = None if self._angles is None else self._angles(x, position_ids=positions)
        links = self.links
        if links is not None:
            return DecoderOutput(self.norm(self._together(x, angles, links)))
        rope = {} if angles is None else {ROTATION: angles}
        self.begin()
        for layer in self.layers:
            x = layer(x, **rope)
        return DecoderOutput(self.norm(x))

    @property
    def links(self) -> Links | None:
        """None if the attention that is attached is no kernel."""
        first, links = kernel_call_of(self._first_attention), self._links
        if first is None:
            self._links = None
        elif (
            links is None
            or links.offer is not first.offer
            or links.count != len(self.layers)  # a proof may leave layers out
        ):
            self._links = self._linked(first.offer)
        return self._links

    def run(self, links: Links, model: int | None = None) -> None:
        """Compute all layers, and what the ModelCall at ``model`` has around them."""
        lent = None if self.lent is None else self.lent.address
        self.begin()
        with self.times as times:
            self._kernels.layers(links.calls, links.attentions, links.count, model, lent, times)

    def _linked(self, offer: object) -> Links | None:
        layers = list(self.layers)
        calls = [kernel_call_of(layer.attention) for layer in layers]
        addresses = [call.address for call in calls if call is not None and call.offer is offer]
        if len(addresses) < len(layers):
            return None
        array = c_void_p * len(layers)
        return Links(
            offer=offer,
            count=len(layers),
            calls=array(*(layer.address for layer in layers)),
            attentions=array(*addresses),
            buffers=list({id(each.intermediate): each.intermediate for each in layers}.values()),
            angles=None if self._angles is None else AngleTable(self._angles_of),
        )

    def _angles_of(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See AnglesOf."""
        x = torch.zeros(1).expand(1, positions.shape[1], self._first.hidden_size)
        return self._first.rotation(self._angles(x, position_ids=positions))

    def _together(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor] | None, links: Links
    ) -> torch.Tensor:
        """Compute all layers in one call of the kernel."""
        y = x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        rotation = (0, 0, 0)
        if angles is not None:
            cos, sin = self._first.rotation(angles)
            rotation = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]
        links.point(x.shape[1], y.data_ptr(), y.data_ptr(), rotation)
        self.run(links)
        return y


@contextmanager
def proof_attention(decoder: FusedDecoder, attention: Attention) -> Iterator[None]:
    """Attend without a cache, in the first layers up to one with each attention; cut the others."""
    specs = dict(attention)
    of_layers = [spec for _, spec in attention]
    count = max(of_layers.index(spec) for spec in of_layers) + 1
    plain = routed(specs, lambda q, k, v, module, _kwargs: causal_attention(q, k, v, specs[module]))
    with plain, first_layers(decoder.layers, count):
        yield


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
        with proof_attention(self._fused, self._attention):
            expected = output_of(self._decoder, **batch)
            actual = output_of(self._fused, **batch)  # angles may need other arguments
        return (
            expected is not None
            and actual is not None
            and proof.is_close(expected.last_hidden_state, actual.last_hidden_state)
        )

    def install(self) -> None:
        """See Candidate."""
        self._decoder.forward = self._fused


def decoder_pattern(
    kernels: Kernels, attention: Attention, model: nn.Module
) -> Iterator[DecoderCandidate]:
    """A candidate for the model's decoder, if all its layers are fused.

    Raises NotRecognisedError.
    """
    decoder = getattr(model, getattr(model, "base_model_prefix", ""), None)
    if not isinstance(decoder, nn.Module) or _names(decoder) is None:
        raise NotRecognisedError("decoder", "there are other modules around its layers")
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
