"""Layer groups: which layers share a block table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.kv.layer_spec import LayerSpec


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
