"""fetch_weights: the safetensors files of a model of the hub."""

from __future__ import annotations

from pathlib import Path

from core.load.bars import download_options
from core.load.errors import named_errors
from core.system.checkpoint_files import read_file

_NAME = "model.safetensors"
_INDEX = _NAME + ".index.json"


def fetch_weights(source: str) -> None:
    """Bring the files into the hub's cache that are not there; nothing if it has none.

    Raises ModelLoadError where the hub refuses.
    """
    with named_errors(source):
        if _fetch(source, _NAME) is None and (index := _fetch(source, _INDEX)) is not None:
            names = read_file(index).get("weight_map")
            for name in sorted(set(names.values())) if isinstance(names, dict) else ():
                _fetch(source, str(name))


def _fetch(source: str, name: str) -> Path | None:
    """The path of a file in the hub's cache; None if the model has no such file."""
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    try:
        return Path(hf_hub_download(source, name, **download_options(source)))
    except EntryNotFoundError:  # also where the hub cannot be reached and the cache lacks it
        return None
