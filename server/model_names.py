"""The ids by which clients know the served model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from core.builtin_model import MODEL_ID

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_CACHED = re.compile(r"models--(?P<id>[^/]+)/snapshots/[^/]+/?$")
"""The directory of a hub model in the cache of huggingface_hub."""


def default_name(model: str | None) -> str:
    """The id of a model without ``--served-model-name``. It contains no path of this machine.

    It is the hub id, the last name of a directory, or the name of a file without its suffix.
    """
    if model is None:
        return MODEL_ID
    path = Path(model)
    if not model.startswith(("/", ".")) and not os.path.exists(path):  # noqa: PTH110 - no OSError
        return model
    place = os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links into the hub's cache
    cached = _CACHED.search(place)
    if cached:
        return cached["id"].replace("--", "/")
    name = os.path.basename(place)  # noqa: PTH119
    if name.endswith((".gguf", ".pt", ".pth", ".bin")):
        name = _SHARD.sub("", name.rpartition(".")[0])
    return name or MODEL_ID
