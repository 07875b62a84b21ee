"""Reduce a model temporarily: to short windows, which a short prompt exceeds, or to few layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import nn

from core.kv.layer_spec import LayerSpec

_NAMES = ("sliding_window", "sliding_window_size", "window_size", "attention_chunk_size")

SMALLEST = 3
"""Tokens of the smallest reduced window while attention calls are recorded."""


class Windows:
    """The window sizes in a model's configuration and modules, in tokens.

    transformers takes a layer's window from a mask that the configuration's size shapes, and also
    passes the size that the attention module holds.
    """

    def __init__(self, model: nn.Module) -> None:
        self._fields = [*_fields(model)]
        self.sizes = sorted({size for _, _, size in self._fields})

    def unseen(self, seen: Collection[int | None], config: Any) -> int | None:
        """Return a size in a configuration without ``layer_types`` that no layer's mask has.

        transformers' cache drops tokens outside of such a window, even if the mask includes them.
        """
        if getattr(config, "layer_types", None):
            return None
        longest = getattr(config, "max_position_embeddings", None) or float("inf")
        sizes = [
            value
            for name, value in vars(config).items()
            if "window" in name and "layers" not in name and type(value) is int
        ]
        return next((size for size in sizes if 0 < size < longest and size not in seen), None)

    @contextmanager
    def reduced(self, smallest: int) -> Iterator[dict[int, int]]:
        """Give the ``i``-th smallest window the size ``smallest + i``; yields the new sizes."""
        small = {size: smallest + i for i, size in enumerate(self.sizes)}
        for owner, name, size in self._fields:
            setattr(owner, name, small[size])
        try:
            yield small
        finally:
            for owner, name, size in self._fields:
                setattr(owner, name, size)


def _fields(model: Any) -> Iterator[tuple[Any, str, int]]:
    """Yield each object with a window size, the name of its field, and the size in tokens."""
    owners: dict[int, Any] = {}
    for module in model.modules():
        owners[id(module)] = module
        config = getattr(module, "config", None)
        if config is not None:
            owners[id(config)] = config
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for owner in owners.values():
        for name, value in list(vars(owner).items()):
            if name == "attention_chunk_size" and value and context and value >= context:
                continue  # the context has one chunk
            if name in _NAMES and type(value) is int and value > 0:
                yield owner, name, value


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
