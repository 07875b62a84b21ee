"""AttentionBackend: what a way of computing attention has to offer, and how one is found."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol

import torch

from core.contract.errors import ModelLoadError
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput


class AttentionBackend(Protocol):
    """Computes causal attention of packed queries over the paged cache. Core thread only."""

    def plan(self, batch: ModelInput) -> None:
        """Prepare what all layers of this step share."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Write this step's keys and values, then attend.

        ``query`` is ``[num_tokens, num_heads, head_dim]``, ``key`` and ``value``
        ``[num_tokens, num_kv_heads, head_dim]``. All writes come before any read: sequences of
        one step share blocks that the step itself fills. Returns
        ``[num_tokens, num_heads, value_dim]``.
        """


class BackendFactory(Protocol):
    """Builds a backend over a storage; the class itself, usually."""

    def __call__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> AttentionBackend:
        """Build the backend."""


_BACKENDS = {
    "cpu": ("core.attention.cpu_backend", "PagedCPUBackend"),
    "torch": ("core.attention.torch_backend", "PagedTorchBackend"),
    "triton": ("core.attention.triton.backend", "TritonBackend"),
}


def backend_factory(name: str) -> BackendFactory:
    """Find a backend by name, importing it only now. Raises ModelLoadError if there is none."""
    if name not in _BACKENDS:
        known = ", ".join(sorted(_BACKENDS))
        raise ModelLoadError(f"unknown attention backend {name!r}; choose auto, {known}")
    module, attribute = _BACKENDS[name]
    try:
        factory: BackendFactory = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            f"attention backend {name!r} needs a package that is not installed: {error.name}"
        ) from error
    return factory
