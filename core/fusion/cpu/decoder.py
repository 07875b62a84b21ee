"""A decoder's forward pass in as few lines as it has when all its layers are fused.

What transformers does around its layers (masks, caches, records of what passes by) is for callers
that ask for more than the last hidden states of packed tokens. It costs as much time as a layer or
two, in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.fusion.cpu.layer import ROTATION, FusedLayer

_DECODERS = (
    ("embed_tokens", None, "layers", "norm", "rotary_emb"),
    ("wte", "wpe", "h", "ln_f", None),
)
"""Names of: embedding, embedding of positions, layers, last norm, angles of positions."""


@dataclass(frozen=True, slots=True)
class DecoderOutput:
    """What a language model's head reads of transformers' own output; the rest is not there."""

    last_hidden_state: torch.Tensor  # [1, num_tokens, hidden_size]
    past_key_values: None = None
    hidden_states: None = None
    attentions: None = None
    cross_attentions: None = None

    def __getitem__(self, index: int) -> torch.Tensor:
        """As of a tuple of what is there."""
        return (self.last_hidden_state,)[index]


class FusedDecoder:
    """Stands in for a decoder's ``forward``. Core thread only.

    The original still gets every call that asks for more than packed tokens at their positions.
    """

    def __init__(self, decoder: nn.Module, original: Callable[..., Any]) -> None:
        """``decoder`` is one of those that ``is_known``."""
        names = _names(decoder)
        assert names is not None
        children = dict(decoder.named_children())
        parts: list[Any] = [None if name is None else children[name] for name in names]
        self._embedding, self._places, self._layers, self._norm, self._rotary = parts
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the last hidden states."""
        ids = args[0] if len(args) == 1 else kwargs.get("input_ids")
        positions = kwargs.get("position_ids")
        if ids is None or positions is None or len(args) > 1 or _asks_for_more(kwargs):
            return self._original(*args, **kwargs)
        x = self._embedding(ids)
        if self._places is not None:
            x = x + self._places(positions)
        more = {}
        if self._rotary is not None:
            more[ROTATION] = self._rotary(x, position_ids=positions)
        for layer in self._layers:
            x = layer(x, **more)
        return DecoderOutput(self._norm(x))


def is_known(decoder: nn.Module) -> bool:
    """Whether this is made of fused layers and nothing but what is known to go around them."""
    return _names(decoder) is not None


def _names(decoder: nn.Module) -> tuple[str | None, ...] | None:
    parts = {
        name: module
        for name, module in decoder.named_children()
        if not isinstance(module, nn.Dropout)
    }
    for names in _DECODERS:
        layers: Any = parts.get(names[2])
        if parts.keys() == {name for name in names if name is not None} and all(
            isinstance(layer, FusedLayer) for layer in layers
        ):
            return names
    return None


def _asks_for_more(arguments: dict[str, Any]) -> bool:
    return any(
        value is not None and value is not False
        for name, value in arguments.items()
        if name not in ("input_ids", "position_ids")
    )
