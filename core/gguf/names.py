"""Names of GGUF files, and of the parts of split ones; how a file begins."""

from __future__ import annotations

import re
from pathlib import Path

SUFFIX = ".gguf"

MAGIC = b"GGUF"
"""The first bytes of a file."""

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")

_SIDECAR = "mmproj"
"""Prefix of the names of files that hold a vision encoder beside a model."""


def part_names(name: str) -> list[str]:
    """Return the names of all parts of the split file that ``name`` belongs to, else ``name``."""
    match = _SPLIT.fullmatch(name)
    if match is None:
        return [name]
    count = match["count"]
    return [f"{match['stem']}-{i:05}-of-{count}.gguf" for i in range(1, int(count) + 1)]


def models_in(folder: Path) -> list[str]:
    """Return the names of the models in a folder: of a split one that of its first part.

    Also names that end in ``.GGUF`` or the like, which are not served.
    """
    names = (file.name for file in folder.iterdir() if file.name.lower().endswith(SUFFIX))
    return sorted({part_names(name)[0] for name in names if not name.startswith(_SIDECAR)})
