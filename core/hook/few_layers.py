"""Reduce a model to its first layers temporarily."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from torch import nn

from core.kv.layer_spec import LayerSpec

MAX_PARAMETERS = 24_000_000
"""Most parameters of the proved layers, unless one layer of each kind has more."""

Specs: TypeAlias = Mapping[nn.Module, tuple[LayerSpec, int]]
"""Attention modules with their spec and their number of calls in a pass."""


class FewLayers:
    """The first layers of a model, at least one of each kind, which represent all layers.

    Layers are of one kind if their modules, shapes, attention and number of calls are alike. What
    a model does only in a later layer of the same kind is not seen; a model of up to MAX_PARAMETERS
    keeps them all.
    """

    def __init__(
        self, model: nn.Module, modules: Sequence[nn.Module], layers: Sequence[LayerSpec]
    ) -> None:
        """``modules`` are the attention modules, ``layers`` their specs."""
        calls = Counter(modules)
        specs = {
            module: (spec, calls[module]) for module, spec in zip(modules, layers, strict=True)
        }
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        self._list = max(lists, key=lambda found: _num_with(found, specs), default=None)
        self.count = 0 if self._list is None else _num_needed(self._list, specs)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Remove the other layers from the model in the block."""
        if self._list is None:
            yield
            return
        with first_layers(self._list, self.count):
            yield


@contextmanager
def first_layers(layers: nn.ModuleList, count: int) -> Iterator[None]:
    """Remove all but the first ``count`` layers from the list in the block."""
    others = list(layers)[count:]
    del layers[count:]
    try:
        yield
    finally:
        layers.extend(others)


def _num_with(layers: nn.ModuleList, specs: Specs) -> int:
    return sum(any(module in specs for module in layer.modules()) for layer in layers)


def _num_needed(layers: nn.ModuleList, specs: Specs) -> int:
    """Count the layers up to the first of the last kind, and further ones up to the limit."""
    kinds = [_kind(layer, specs) for layer in layers]
    needed = max((kinds.index(kind) + 1 for kind in set(kinds)), default=0)
    num_parameters = 0
    for count, layer in enumerate(layers, 1):
        num_parameters += sum(parameter.numel() for parameter in layer.parameters())
        if num_parameters > MAX_PARAMETERS and count > needed:
            return max(needed, count - 1)
    return len(layers)


def _kind(layer: nn.Module, specs: Specs) -> tuple[object, ...]:
    return tuple(
        (type(module), specs.get(module), *(p.shape for p in module.parameters(recurse=False)))
        for module in layer.modules()
    )
