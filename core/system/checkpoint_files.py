"""Checks files of a checkpoint: pointers of Git LFS, web pages, files cut off, broken JSON.

Libraries say "header too large" or "Expecting value" of such files, or ignore them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from core.contract.errors import ModelLoadError, first_line

_POINTER = b"version https://git-lfs"
_PAGES = (b"<!doctype html", b"<html")
_PICKLE = b"\x80"
_LARGEST_HEADER = 100_000_000
"""Bytes that the library of safetensors takes for a header."""


def foreign(head: bytes) -> str | None:
    """Return what a file is instead of a checkpoint's, None if nothing shows it.

    ``head`` are its first 64 bytes.
    """
    if head.startswith(_POINTER):
        return "is a pointer of Git LFS, not the file itself: run `git lfs pull` in its directory"
    if head.lstrip()[:64].lower().startswith(_PAGES):
        return "is a web page (HTML), not the file itself: download the file again"
    return None


def is_there(path: Path) -> bool:
    """Whether there is anything of this name: a file, a directory, or a link, also to nothing."""
    return path.is_symlink() or path.exists()


def check_files(paths: Iterable[Path]) -> None:
    """Check those of the files that are there. Raises ModelLoadError for the first broken one."""
    for path in paths:
        if is_there(path):
            check_file(path)


def check_file(path: Path) -> None:
    """Raise ModelLoadError, which names the file, if it cannot be what its name says."""
    if path.is_symlink() and not path.exists():
        raise ModelLoadError(f"{path} is a link to a file that is not there")
    try:
        with path.open("rb") as file:
            head = file.read(64)
        if reason := foreign(head):
            raise ModelLoadError(f"{path} {reason}")
        check = _CHECKS.get(path.suffix)
        if check is not None:
            if not head and check is not _check_text:
                raise ModelLoadError(f"{path} is empty")
            check(path, head)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror or error}") from error


def read_file(path: Path, kind: type = dict) -> Any:
    """The object or list in a JSON file. Raises ModelLoadError, which names the file."""
    check_file(path)
    content = _json(path)
    if not isinstance(content, kind):
        raise ModelLoadError(f"{path} holds no JSON {'object' if kind is dict else 'list'}")
    return content


def find_file(source: str, name: str) -> Path | None:
    """Return the local path of a file of the directory or hub id, None if it has no such file."""
    folder = Path(source)
    if folder.is_dir():
        return path if is_there(path := folder / name) else None
    from transformers.utils import cached_file  # noqa: PLC0415 - slow to import

    found = cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def folder_of(model: str | None) -> Path | None:
    """The directory of a checkpoint, or where the hub's cache has it; None if it is not here."""
    if model is None:
        return None
    path = Path(model)
    try:
        if path.exists():
            return path if path.is_dir() else None  # a state dict
    except OSError:
        return None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def safetensors_header(path: Path) -> dict[str, Any]:
    """The description of each tensor by name. Raises ModelLoadError, which names the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        start = file.read(1)
        if length > _LARGEST_HEADER or start not in {b"{", b""}:
            raise ModelLoadError(f"{path} is no safetensors file")
        if 8 + length > size:
            raise ModelLoadError(f"{path} is cut off: it ends within its header, at byte {size}")
        text = start + file.read(length - 1)
    try:
        header: dict[str, Any] = json.loads(text)
        header.pop("__metadata__", None)
        end = 8 + length + max((info["data_offsets"][1] for info in header.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ModelLoadError(f"{path} is no safetensors file: its header is damaged") from error
    if size < end:
        raise ModelLoadError(f"{path} is cut off: it has {size:,} of {end:,} bytes")
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - only to read weights

    try:
        with safe_open(path, "numpy"):  # the library's own check, which reads no tensor
            return header
    except SafetensorError as error:
        raise ModelLoadError(f"{path} is no safetensors file: {first_line(error)}") from error


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} is not valid JSON: {first_line(error)}") from error


def _check_json(path: Path, _head: bytes) -> None:
    _json(path)


def _check_safetensors(path: Path, _head: bytes) -> None:
    safetensors_header(path)


def _check_text(path: Path, _head: bytes) -> None:
    try:
        path.read_text(encoding="utf-8")
    except ValueError as error:
        raise ModelLoadError(f"{path} is not text in UTF-8: {first_line(error)}") from error


def _check_pickle(path: Path, head: bytes) -> None:
    """A file of torch.save: a zip archive, or in its older form a pickle."""
    if head.startswith(b"PK"):
        if not zipfile.is_zipfile(path):
            raise ModelLoadError(f"{path} is cut off: it has no end of a zip archive")
    elif not head.startswith(_PICKLE):
        raise ModelLoadError(f"{path} is no file of torch.save")


_CHECKS: dict[str, Callable[[Path, bytes], None]] = {
    ".json": _check_json,
    ".safetensors": _check_safetensors,
    ".jinja": _check_text,
    ".txt": _check_text,
    **dict.fromkeys((".bin", ".pt", ".pth"), _check_pickle),
}
"""What can be told of a file by its suffix."""
