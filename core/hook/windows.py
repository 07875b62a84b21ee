"""Reduce the sliding windows of a model temporarily, so that a short prompt exceeds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

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
