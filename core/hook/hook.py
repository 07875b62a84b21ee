"""AttentionHook: routes the attention of one model to a function of ours."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from core.attention.base import AttentionBackend, KernelBackend
from core.hook.interface import ATTENTION_NAME, offer, register, route, unroute
from core.hook.recording import Recording
from core.hook.windows import Windows
from core.kv.layer_spec import LayerSpec


class AttentionFunction(Protocol):
    """Packed causal attention of layer ``layer``: ``[num_tokens, heads, dim]`` each."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Return ``[num_tokens, num_heads, value_dim]``."""


class AttentionHook:
    """Routes the attention of one model to a function of ours. Core thread only.

    ``layers[i]`` and ``modules[i]`` belong to the ``i``-th attention call of a forward pass. Each
    call has a cache of its own, even where a module attends more than once.
    """

    def __init__(self, model: nn.Module) -> None:
        """Record the model's attention calls.

        Raises ModelLoadError if a backend cannot compute them. EngineProof compares the results.
        """
        register()
        self._model = model
        self._begin: RemovableHandle | None = None
        self.windows = Windows(model)
        recording = Recording(model, self.windows)
        self.layers: list[LayerSpec] = recording.layers
        self.modules = recording.modules
        model.set_attn_implementation(ATTENTION_NAME)  # type: ignore[operator]

    def reduced_layers(self, smallest: int) -> list[LayerSpec]:
        """Return the layers with the windows of ``Windows.reduced``."""
        with self.windows.reduced(smallest) as small:
            return [
                dataclasses.replace(layer, sliding_window=small[layer.sliding_window])
                if layer.sliding_window
                else layer
                for layer in self.layers
            ]

    def attach(self, backend: AttentionBackend) -> None:
        """Compute the attention of every later forward pass with a backend.

        Fused layers may call its kernels directly.
        """
        self.install(backend.forward)
        calls = backend.kernel_calls if isinstance(backend, KernelBackend) else None
        # a module that is called as several layers has no single kernel call
        if calls is not None and len({*self.modules}) == len(self.modules):
            offer(self.modules, calls)

    def install(self, function: AttentionFunction) -> None:
        """Compute the attention of every later forward pass with ``function``."""
        calls: dict[nn.Module, list[int]] = defaultdict(list)
        for index, module in enumerate(self.modules):
            calls[module].append(index)
        turns: dict[nn.Module, Iterator[int]] = {}

        def begin(*_: object) -> None:
            turns.update((module, itertools.cycle(indices)) for module, indices in calls.items())

        begin()
        if self._begin is not None:  # of the function before
            self._begin.remove()
            self._begin = None
        if len(calls) < len(self.modules):  # a failed pass may have ended between two calls
            self._begin = self._model.register_forward_pre_hook(begin)

        def attend(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            module: nn.Module,
            _kwargs: dict[str, Any],
        ) -> torch.Tensor:
            return function(query, key, value, next(turns[module]))

        route(self.modules, attend)

    def uninstall(self) -> None:
        """Release the function. Install another one before the next forward pass."""
        unroute(self.modules)
        if self._begin is not None:
            self._begin.remove()
            self._begin = None
