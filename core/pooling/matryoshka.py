"""Sizes to which the vectors of a model may be cut: what it was trained for, as far as is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.contract.errors import ModelLoadError

_TRAINED: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("qwen3-embedding", "qwen3", ()),
    ("embeddinggemma", "gemma3_text", (512, 256, 128)),
    ("nomic-embed-text-v1.5", "nomic_bert", (512, 256, 128, 64)),
)
"""How the name of a model begins, its ``model_type``, and the sizes that its authors name. Their
configurations do not say that the vectors may be cut."""


def sizes_of(
    config: Any, size: int, *, source: str, chosen: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Sizes to which a vector may be cut; empty: any below its own. None: it may not be cut.

    The operator's choice comes first, then the configuration, then the model's name. Raises
    ModelLoadError for a choice above ``size``, and for a configuration that names no numbers.
    """
    if chosen is not None:
        if max(chosen, default=0) > size:
            raise ModelLoadError(
                f"--matryoshka-dimensions has {max(chosen)}, and the vectors of {source} have "
                f"{size} dimensions"
            )
        return chosen
    named = getattr(config, "matryoshka_dimensions", None)
    if named:
        if not isinstance(named, list | tuple) or not all(
            type(one) is int and one > 0 for one in named
        ):
            raise ModelLoadError(
                f"matryoshka_dimensions in the configuration of {source} are no list of whole "
                "numbers above 0"
            )
        return tuple(one for one in named if one <= size) or None
    if getattr(config, "is_matryoshka", False):
        return ()
    name = _name_of(source)
    for beginning, model_type, sizes in _TRAINED:
        if name.startswith(beginning) and config.model_type == model_type:
            return sizes
    return None


def _name_of(source: str) -> str:
    """The model's own name, of a hub id, a directory, or a directory in the hub's cache."""
    path = Path(source)
    if path.is_dir():
        path = path.resolve()
    if path.parent.name == "snapshots":
        return path.parent.parent.name.rpartition("--")[2].lower()
    return path.name.lower()
