"""AttentionHook: routes the attention of one model to a function of ours."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import torch
from torch import nn

from core.layer_spec import LayerSpec
from core.model.attention_interface import ATTENTION_NAME, register, route, unroute
from core.model.recording import Recording
from core.model.windows import Windows


class AttentionFunction(Protocol):
    """Packed causal attention of layer ``layer``: ``[num_tokens, heads, dim]`` each."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Return ``[num_tokens, num_heads, value_dim]``."""


class AttentionHook:
    """Routes the attention of one model to a function of ours. Core thread only.

    ``layers[i]`` and ``modules[i]`` belong to the ``i``-th attention call of a forward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        """Record the model's attention calls. Raises ModelLoadError if they are not ours to make.

        Whether the model computes the same with our attention is for EngineProof to say.
        """
        register()
        self.windows = Windows(model)
        recording = Recording(model, self.windows)
        self.layers = recording.layers
        self.modules = recording.modules
        model.set_attn_implementation(ATTENTION_NAME)  # type: ignore[operator]

    def reduced_layers(self, smallest: int) -> list[LayerSpec]:
        """The layers with the windows that ``Windows.reduced`` gives the model."""
        with self.windows.reduced(smallest) as small:
            return [
                dataclasses.replace(layer, sliding_window=small[layer.sliding_window])
                if layer.sliding_window
                else layer
                for layer in self.layers
            ]

    def install(self, function: AttentionFunction) -> None:
        """Compute the attention of every later forward pass with ``function``."""
        indices = {module: index for index, module in enumerate(self.modules)}

        def attend(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            module: nn.Module,
            _kwargs: dict[str, Any],
        ) -> torch.Tensor:
            return function(query, key, value, indices[module])

        route(self.modules, attend)

    def uninstall(self) -> None:
        """Release the function. Install another one before the next forward pass."""
        unroute(self.modules)
