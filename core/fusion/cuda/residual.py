"""Projections that add to the residual stream in the product: two operations fewer a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from core.fusion.patterns import matrix_of

_CHILDREN = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
"""Of a layer that adds to the stream twice, and does nothing else to it."""


class ResidualLinear(nn.Module):
    """A product without bias; where it is given the residual stream, it adds to that in place."""

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


class ResidualLayer:
    """A decoder layer whose sums are part of products. ``install`` and ``uninstall`` it."""

    def __init__(self, layer: Any, attention: torch.Tensor, mlp: torch.Tensor) -> None:
        """The weights are those of the last projections of attention and feed-forward block."""
        self._layer = layer
        self._originals = layer.self_attn.o_proj, layer.mlp.down_proj
        self._attention, self._mlp = ResidualLinear(attention), ResidualLinear(mlp)

    def install(self) -> None:
        """Take the place of the layer's own forward code."""
        self._layer.self_attn.o_proj, self._layer.mlp.down_proj = self._attention, self._mlp
        self._layer.forward = self._forward

    def uninstall(self) -> None:
        """Make the layer what it was."""
        self._layer.self_attn.o_proj, self._layer.mlp.down_proj = self._originals
        del self._layer.forward

    def _forward(self, stream: torch.Tensor, **named: Any) -> torch.Tensor:
        """``stream`` is overwritten."""
        layer = self._layer
        x = layer.input_layernorm(stream)
        self._attention.add_to(stream)
        stream, *_ = layer.self_attn(hidden_states=x, **named)
        x = layer.post_attention_layernorm(stream)
        self._mlp.add_to(stream)
        output: torch.Tensor = layer.mlp(x)
        return output


def residual_layer(layer: Any) -> ResidualLayer | None:
    """What may stand in for the layer, by the names of its parts; it is to be proved."""
    if {name for name, _ in layer.named_children()} != _CHILDREN:
        return None
    attention = matrix_of(getattr(layer.self_attn, "o_proj", None))
    mlp = matrix_of(getattr(layer.mlp, "down_proj", None))
    if attention is None or mlp is None or attention[1] is not None or mlp[1] is not None:
        return None
    return ResidualLayer(layer, attention[0], mlp[0])
