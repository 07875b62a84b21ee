"""layer_configs: the sizes of each layer, which differ between layers in some models."""

from __future__ import annotations

from typing import Any


def layer_configs(config: Any) -> list[Any]:
    """Return the configuration of each layer if some differ, else the one of them all.

    ``config`` is that of the text model. If layers differ in a size, as Gemma 4's heads do,
    transformers refuses to read it there.
    """
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)
    return [config]


def number(config: Any, name: str) -> int:
    """Return a size of a layer; 0 if there is none, or one that no tensor has."""
    value = getattr(config, name, None)
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0
