"""Files of a checkpoint, in a directory or on the hub."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from core.checkpoint_files import find_file, read_file
from core.contract.errors import ModelLoadError

__all__ = ["find_file", "inner_path", "read_json"]


def read_json(source: str, name: str, kind: type = dict) -> Any:
    """The object or list of a JSON file, None if there is no such file. Raises ModelLoadError."""
    path = find_file(source, name)
    return None if path is None else read_file(path, kind)


def read_object(source: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file, empty without one. Raises ModelLoadError."""
    content: dict[str, Any] | None = read_json(source, name)
    return content or {}


def texts_of(value: object) -> dict[str, str]:
    """Return the texts of a JSON object by name, empty if ``value`` is none."""
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def inner_path(folder: object, name: str) -> str:
    """Join a folder that a checkpoint names and a file name. Raises ModelLoadError if it leaves."""
    path = PurePosixPath(str(folder)) / name
    if path.is_absolute() or ".." in path.parts:
        raise ModelLoadError(f"the checkpoint names a path outside of itself: {folder}")
    return str(path)
