"""The files that transformers loads a directory's weights from, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from core.checkpoint_files import check_file, read_object, reason_in
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError

_NAMES = ("model.safetensors", "pytorch_model.bin")
"""Each may be in parts, with an index beside them."""

_INDEX = ".index.json"
_IGNORED = "generation_config.json"
"""Without it there are no end tokens or defaults of sampling but those of config.json."""

_OTHERS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
_MOST_NAMED = 3


def weight_files(folder: Path) -> list[Path]:
    """The files of a directory, the first of ``_NAMES``. Raises ModelLoadError if there are none.

    The error says what there is instead.
    """
    for name in _NAMES:
        if _is_there(folder / name):
            return [folder / name]
        if _is_there(index := folder / (name + _INDEX)):
            return _parts(index)
    raise ModelLoadError(f"{folder} has no weights that can be loaded: {_what_there_is(folder)}")


def folder_of(model: str | None) -> Path | None:
    """The directory of a checkpoint, or where the hub's cache has it; None if it is not here."""
    if model is None:
        return None
    path = Path(model)
    if path.is_dir():
        return path
    if path.exists():
        return None  # a state dict
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def check_ignored(source: str) -> None:
    """Raise ModelLoadError for a file of a checkpoint that transformers ignores if it is broken."""
    folder = folder_of(source)
    if folder is not None and _is_there(folder / _IGNORED):
        check_file(folder / _IGNORED)
        read_object(folder / _IGNORED)


def broken_file(config: ModelConfig) -> str | None:
    """What is wrong with the files of a model whose load has failed; None if that is not known."""
    folder, path = folder_of(config.model), Path(config.model or "")
    if folder is None:
        return reason_in(path) if path.is_file() else None
    try:
        if (folder / "config.json").exists():
            read_object(folder / "config.json")
        if path.is_dir() or any(_is_there(folder / name) for name in _NAMES):
            for file in weight_files(folder):
                check_file(file)
    except ModelLoadError as error:
        return str(error)
    return None


def _is_there(path: Path) -> bool:
    """Whether there is a file or a link of this name."""
    return path.is_symlink() or path.is_file()


def _parts(index: Path) -> list[Path]:
    check_file(index)
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelLoadError(f"{index} has no weight_map: which tensor is in which file")
    parts = [index.with_name(name) for name in sorted({str(name) for name in names.values()})]
    missing = [part.name for part in parts if not _is_there(part)]
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
