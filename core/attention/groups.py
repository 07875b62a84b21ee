"""Layer groups: which layers share a block table, and one attention backend for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.attention.base import AttentionBackend, BackendFactory, KernelBackend
from core.batch.model_input import ModelInput
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of one window; None is the full group, whose tables hold every token.

    ``layers[i]`` is layer ``indices[i]`` of the model.
    """

    window: int | None
    indices: tuple[int, ...]
    layers: tuple[LayerSpec, ...]


def groups_on(
    device: torch.device, layers: Sequence[LayerSpec], max_model_len: int
) -> list[LayerGroup]:
    """Groups by window on a CPU. The CUDA graphs have one block table: one group."""
    if device.type == "cpu":
        return layer_groups(layers, max_model_len)
    return one_group(layers)


def one_group(layers: Sequence[LayerSpec]) -> list[LayerGroup]:
    """All layers in the full group: no block is released before its sequence ends."""
    return [LayerGroup(None, tuple(range(len(layers))), tuple(layers))]


def layer_groups(layers: Sequence[LayerSpec], max_model_len: int) -> list[LayerGroup]:
    """The full group, which may have no layer, and a group for each window that hides anything."""
    indices: dict[int | None, list[int]] = {None: []}
    for index, layer in enumerate(layers):
        window = layer.sliding_window
        hides = window is not None and window < max_model_len
        indices.setdefault(window if hides else None, []).append(index)
    return [
        LayerGroup(window, tuple(members), tuple(layers[index] for index in members))
        for window, members in indices.items()
    ]


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
