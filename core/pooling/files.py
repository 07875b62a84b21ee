"""Files of a checkpoint, in a directory or on the hub."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from core.contract.errors import ModelLoadError
from core.system.checkpoint_files import find_file, read_file


def read_json(source: str, name: str, kind: type = dict) -> Any:
    """The object or list of a JSON file, None if there is no such file. Raises ModelLoadError."""
    path = find_file(source, name)
    return None if path is None else read_file(path, kind)


def read_object(source: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file, empty without one. Raises ModelLoadError."""
    content: dict[str, Any] | None = read_json(source, name)
    return content or {}


def prompt_facts(source: str) -> dict[str, Any]:
    """The fields of a Recipe that say which texts begin an input. Raises ModelLoadError."""
    name = "config_sentence_transformers.json"
    named = read_object(source, name)
    prompts, default = named.get("prompts") or {}, named.get("default_prompt_name") or None
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise ModelLoadError(f"prompts in {name} of {source} are no texts by name")
    if default is not None and default not in [*prompts]:
        raise ModelLoadError(
            f"default_prompt_name in {name} of {source} is {default!r}, which is none of its "
            "prompts"
        )
    return {"prompts": prompts, "default_prompt": default}


def inner_path(folder: object, name: str) -> str:
    """Join a folder that a checkpoint names and a file name. Raises ModelLoadError if it leaves."""
    path = PurePosixPath(str(folder)) / name
    if path.is_absolute() or ".." in path.parts:
        raise ModelLoadError(f"the checkpoint names a path outside of itself: {folder}")
    return str(path)
