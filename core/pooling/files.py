"""Files of a checkpoint, in a directory or on the hub."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from core.contract.errors import ModelLoadError


def find_file(source: str, name: str) -> Path | None:
    """Return the local path of a file of the directory or hub id, None if it has no such file."""
    folder = Path(source)
    if folder.is_dir():
        path = folder / name
        return path if path.is_file() else None
    from transformers.utils import cached_file  # noqa: PLC0415 - slow to import

    found = cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def read_json(source: str, name: str) -> Any:
    """Return the content of a JSON file, None if there is no such file. Raises ModelLoadError."""
    path = find_file(source, name)
    if path is None:
        return None
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ModelLoadError(f"{name} of {source} cannot be read: {error}") from error


def read_object(source: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file, empty without one. Raises ModelLoadError."""
    content = read_json(source, name)
    return content if isinstance(content, dict) else {}


def texts_of(value: object) -> dict[str, str]:
    """Return the texts of a JSON object by name, empty if ``value`` is none."""
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def inner_path(folder: object, name: str) -> str:
    """Join a folder that a checkpoint names and a file name. Raises ModelLoadError if it leaves."""
    path = PurePosixPath(str(folder)) / name
    if path.is_absolute() or ".." in path.parts:
        raise ModelLoadError(f"the checkpoint names a path outside of itself: {folder}")
    return str(path)
