"""The files that transformers loads a directory's weights from, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.system.checkpoint_files import check_file, folder_of, is_there, read_file

_NAMES = ("model.safetensors", "pytorch_model.bin")
"""Weights in one file; they may be in parts instead, with an index."""

_INDEX = ".index.json"
_OTHERS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
_MOST_NAMED = 3


def weight_files(folder: Path) -> list[Path]:
    """The files of a directory, the first of ``_NAMES``. Raises ModelLoadError if there are none.

    The error says what there is instead.
    """
    for name in _NAMES:
        if is_there(folder / name):
            return [folder / name]
        if is_there(index := folder / (name + _INDEX)):
            return _parts(index)
    raise ModelLoadError(f"{folder} has no weights that can be loaded: {_what_there_is(folder)}")


def files_of(config: ModelConfig) -> list[Path]:
    """The files of a model's weights that are here, none if the hub has them all.

    Raises ModelLoadError if a directory has none.
    """
    if config.model is None:
        return []
    path, folder = Path(config.model), folder_of(config.model)
    if folder is None:
        return [path] if path.is_file() else []
    if not path.is_dir() and not any(folder.glob(name + "*") for name in _NAMES):
        return []
    return weight_files(folder)


def broken_file(config: ModelConfig) -> str | None:
    """The fault in the files of a model whose load has failed; None if none is found."""
    folder = folder_of(config.model)
    try:
        if folder is not None and (folder / "config.json").exists():
            read_file(folder / "config.json")
        for file in files_of(config):
            check_file(file)
    except ModelLoadError as error:
        return str(error)
    return None


def _parts(index: Path) -> list[Path]:
    content = read_file(index)
    names = content.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelLoadError(f"{index} has no weight_map: which tensor is in which file")
    if not isinstance(content.get("metadata"), dict):
        raise ModelLoadError(f"{index} has no metadata, an object that transformers needs")
    parts = [index.parent / name for name in sorted({str(name) for name in names.values()})]
    missing = [part.name for part in parts if not is_there(part)]
    if missing:
        raise ModelLoadError(
            f"{index.parent} lacks {_named(missing)} of {len(parts)} files that {index.name} names"
        )
    return parts


def _what_there_is(folder: Path) -> str:
    """The weights of other forms in a directory, and what lacks."""
    found = sorted({file.name for pattern in _OTHERS for file in folder.glob(pattern)})
    parts = [name for name in found if name.startswith(("model-", "pytorch_model-"))]
    if parts:
        index = _NAMES[parts[0].startswith("pytorch_")] + _INDEX
        return f"it has {_named(parts)}, and lacks {index}, which says what is where"
    lacks = f"it has neither {' nor '.join(_NAMES)}"
    gguf = [name for name in found if name.endswith(".gguf")]
    if gguf:
        return f"{lacks}; it has {_named(gguf)}, which --gguf-file {gguf[0]} serves"
    if any(name.startswith("consolidated.") for name in found):
        return f"{lacks}, only {_named(found)}, which are in their authors' own format"
    return f"{lacks}{', only ' + _named(found) if found else ''}"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
