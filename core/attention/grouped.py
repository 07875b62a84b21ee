"""GroupedAttention: one attention backend for each layer group."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.attention.base import AttentionBackend, BackendFactory, KernelBackend
from core.attention.layer_groups import LayerGroup
from core.batch.model_input import ModelInput
from core.kv.storage import KVStorage


class GroupedAttention:
    """See AttentionBackend. Each group's backend gets the group's tables, slots and storage."""

    def __init__(
        self,
        factory: BackendFactory,
        storages: Sequence[KVStorage],
        groups: Sequence[LayerGroup],
    ) -> None:
        self._backends: dict[int, AttentionBackend] = {}
        self._places: dict[int, tuple[AttentionBackend, int]] = {}
        for i, (group, storage) in enumerate(zip(groups, storages, strict=True)):
            if group.indices:  # there may be no full attention
                backend = self._backends[i] = factory(storage, group.layers)
                for place, layer in enumerate(group.indices):
                    self._places[layer] = backend, place

    @property
    def kernel_calls(self) -> list[int] | None:
        """See KernelBackend."""
        calls = []
        for layer in sorted(self._places):
            backend, place = self._places[layer]
            of_group = backend.kernel_calls if isinstance(backend, KernelBackend) else None
            if of_group is None:
                return None
            calls.append(of_group[place])
        return calls

    def plan(self, batch: ModelInput) -> None:
        """See AttentionBackend."""
        for i, backend in self._backends.items():
            backend.plan(batch.of_group(i))

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """See AttentionBackend."""
        backend, place = self._places[layer]
        return backend.forward(query, key, value, place)
