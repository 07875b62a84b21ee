"""Find a model's files: its GGUF file, its configuration and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core import builtin_model
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.names import MAGIC, SUFFIX, models_in, part_names

STATE_DICT_SUFFIXES = (".pt", ".pth", ".bin")


def find_gguf(config: ModelConfig) -> Path | None:
    """Return the GGUF file that the operator names, fetched if it is on the hub; None if none.

    It is a path of such a file, ``gguf_file`` in a directory or a hub's repository, or the only one
    in a directory without a config.json. Raises ModelLoadError.
    """
    if config.model is None:
        if config.gguf_file is not None:
            raise ModelLoadError("--gguf-file needs the directory or hub id that has the file")
        return None
    with path_of(config.model) as path:
        is_folder = path.is_dir()
        if path.is_file():
            return _itself(config, path)
        if is_folder and config.gguf_file is None:
            return None if (path / "config.json").exists() else _only_file(config, path)
    if config.gguf_file is not None:
        if not config.gguf_file.endswith(SUFFIX):
            raise ModelLoadError(f"--gguf-file {config.gguf_file} does not end in {SUFFIX}")
        return path / config.gguf_file if is_folder else _fetched(config, config.gguf_file)
    return path if config.model.endswith(SUFFIX) else None


def holds_gguf(model: str) -> bool:
    """Return true if a model is a GGUF file, whatever its name, or a directory of such files.

    Raises ModelLoadError.
    """
    with path_of(model) as path:
        if path.is_dir():
            return not (path / "config.json").exists() and bool(models_in(path))
        return model.endswith(SUFFIX) or (path.is_file() and _begins_as_gguf(path))


def source_of(config: ModelConfig) -> str:
    """Return where the model's config is, and its tokenizer by default.

    It is a directory, a hub id or a GGUF file.
    """
    gguf = find_gguf(config)
    if gguf is not None:
        return str(gguf)
    if config.model is None:
        return str(builtin_model.path())
    if is_state_dict(config):
        if config.config is None or config.tokenizer is None:
            raise ModelLoadError(
                f"{config.model} is a bare state dict: it needs --config and --tokenizer"
            )
        return config.config
    return config.model


def is_state_dict(config: ModelConfig) -> bool:
    """Return true if the model is a bare state dict, by its name; a directory is none."""
    if config.model is None or not config.model.endswith(STATE_DICT_SUFFIXES):
        return False
    with path_of(config.model) as path:
        return not path.is_dir()


@contextmanager
def path_of(model: str) -> Iterator[Path]:
    """The path that the name of a model may be. An OSError in the block is a ModelLoadError."""
    if not model:
        raise ModelLoadError(
            "the name of the model is empty: name a directory, a GGUF file or a hub id"
        )
    try:
        yield Path(model)
    except OSError as error:
        raise ModelLoadError(f"{model} cannot be read: {error.strerror}") from error


def _begins_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _itself(config: ModelConfig, path: Path) -> Path | None:
    """The file that the operator names as the model, None if it is a state dict."""
    if config.gguf_file is not None:
        raise ModelLoadError(
            f"--gguf-file names a file in a directory or at the hub, and {path} is a file: serve "
            f"{path} alone, or {path.parent} with --gguf-file"
        )
    if path.name.endswith(SUFFIX):
        return path
    if is_state_dict(config):
        return None
    if _begins_as_gguf(path):
        raise ModelLoadError(
            f"{path} is a GGUF file whose name does not end in {SUFFIX}: rename it, or name a link "
            "to it"
        )
    raise ModelLoadError(
        f"{path} is neither a GGUF file nor a state dict ({', '.join(STATE_DICT_SUFFIXES)}): name "
        "the directory of the model"
    )


def _only_file(config: ModelConfig, folder: Path) -> Path | None:
    """The GGUF file in a folder, or the first part of the split one.

    None if there is none and --config names the config of the weights in the folder.
    """
    names = models_in(folder)
    firsts = [name for name in names if name.endswith(SUFFIX)]
    if len(firsts) > 1:
        raise ModelLoadError(
            f"{config.model} has several GGUF files: name one of {', '.join(firsts)} with "
            "--gguf-file"
        )
    if firsts:
        return folder / firsts[0]
    if config.config is not None:
        return None
    if names:
        raise ModelLoadError(
            f"{config.model} has {names[0]}, whose name does not end in {SUFFIX}: rename it, or "
            "name a link to it"
        )
    raise ModelLoadError(
        f"{config.model} has neither a config.json nor a model's GGUF file: name a directory that "
        f"has one, a {SUFFIX} file or a hub id"
    )


def _fetched(config: ModelConfig, name: str) -> Path:
    """Fetch a file and its other parts from the hub, or find them in the cache."""
    from transformers.utils import cached_file  # noqa: PLC0415 - slow to import

    paths = {part: cached_file(config.model, part) for part in part_names(name)}
    return Path(paths[name])
