"""AttentionHook: routes the attention of one model to a function of ours."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from core.model.attention_interface import ATTENTION_NAME, register, route, unroute
from core.model.attention_proof import AttentionProof


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
        """Prove that the model works with our attention. Raises ModelLoadError if it does not."""
        register()
        proof = AttentionProof(model)
        proof.run()
        self.layers = proof.layers
        self.modules = proof.modules
        model.set_attn_implementation(ATTENTION_NAME)  # type: ignore[operator]

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
