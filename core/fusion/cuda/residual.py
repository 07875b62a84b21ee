"""Projections that add to the residual stream in the product: two operations less per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from core.fusion.patterns import LLAMA_LAYER, dense, layer_names, matrix_of
from core.fusion.proof import NUM_ROWS, Proof, left_out, output_of, plain_attention
from core.fusion.visitor import AttentionSite, Place
from core.hook.interface import routed


class ResidualLinear(nn.Module):
    """A product without bias that can add to the residual stream in place."""

    def __init__(self, weight: torch.Tensor) -> None:
        """``weight`` is ``[out_features, in_features]``."""
        super().__init__()
        self._weight = weight
        self._stream: torch.Tensor | None = None

    def add_to(self, stream: torch.Tensor) -> None:
        """Let the next call return ``stream``, ``[..., out_features]``, with its product added."""
        self._stream = stream

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to ``[..., in_features]``."""
        stream, self._stream = self._stream, None
        if stream is None:
            return functional.linear(x, self._weight)
        rows = stream.view(-1, stream.shape[-1])
        rows.addmm_(x.reshape(-1, x.shape[-1]), self._weight.t())
        return stream


class ResidualCandidate:
    """A candidate for the forward pass of a decoder layer: its sums become part of products."""

    counts: ClassVar[Mapping[str, int]] = {"residual": 1}

    def __init__(
        self, site: AttentionSite, attention: torch.Tensor, mlp: torch.Tensor, hidden_size: int
    ) -> None:
        """``attention`` and ``mlp`` are the weights of the last projections of both."""
        layer: Any = site.layer
        self._site = site
        self._layer = layer
        self._hidden_size = hidden_size
        self._attention, self._mlp = ResidualLinear(attention), ResidualLinear(mlp)
        self._places = [Place(site.attention, "o_proj"), Place(layer.mlp, "down_proj")]

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate."""
        hidden = proof.random(1, NUM_ROWS, self._hidden_size)
        cos, sin = (proof.random(1, NUM_ROWS, self._site.spec.head_dim) for _ in range(2))
        rope = {"position_embeddings": (cos, sin)}
        of_layer, of_attention = (left_out(m, rope) for m in (self._layer, self._site.attention))
        originals = [place.module for place in self._places]
        with routed([self._site.attention], plain_attention(self._site.spec)):
            expected = output_of(self._layer, hidden.clone(), **rope, **of_layer)
            self.install()
            actual = output_of(self._layer, hidden.clone(), **rope, **of_attention)
        for place, original in zip(self._places, originals, strict=True):
            place.put(original)
        del self._layer.forward
        return actual is not None and proof.is_close(expected, actual)

    def install(self) -> None:
        """See Candidate."""
        for place, module in zip(self._places, (self._attention, self._mlp), strict=True):
            place.put(module)
        self._layer.forward = self._forward

    def _forward(self, stream: torch.Tensor, **named: Any) -> torch.Tensor:
        """Compute the layer. Overwrites ``stream``."""
        layer = self._layer
        x = layer.input_layernorm(stream)
        self._attention.add_to(stream)
        stream, *_ = layer.self_attn(hidden_states=x, **named)
        x = layer.post_attention_layernorm(stream)
        self._mlp.add_to(stream)
        output: torch.Tensor = layer.mlp(x)
        return output


def residual_pattern(hidden_size: int, site: AttentionSite) -> Iterator[ResidualCandidate]:
    """A candidate for a layer whose last projections are plain and have no bias."""
    layer: Any = site.layer
    if layer_names(layer) != LLAMA_LAYER:
        return
    attention = matrix_of(getattr(layer.self_attn, "o_proj", None))
    mlp = matrix_of(getattr(layer.mlp, "down_proj", None))
    if attention is None or mlp is None or attention[1] is not None or mlp[1] is not None:
        return
    yield ResidualCandidate(site, dense(attention[0]), dense(mlp[0]), hidden_size)
