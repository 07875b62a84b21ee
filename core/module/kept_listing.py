"""kept: transformers' list of the names that its model families export, kept between starts.

transformers makes it from the text of thousands of files each time it is imported. It is the same
as long as none of these files has changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from core.system.user_folders import user_folders

Listing: TypeAlias = dict[Any, Any]
"""transformers' own form: Listings of folders by name, and for sets of packages that are needed,
the names that each module exports."""


class _Node(msgspec.Struct, array_like=True):
    """A Listing as a file has it: JSON has no sets."""

    folders: dict[str, _Node]
    exports: list[tuple[list[str], dict[str, list[str]]]]


class _Kept(msgspec.Struct, array_like=True):
    """The content of a file: a digest of the Listing's sources, and the Listing."""

    digest: str
    root: _Node


def kept(
    create: Callable[[str], Listing],
    root: str,
    makers: Sequence[str],
    folders: Callable[[], Sequence[Path]] = lambda: user_folders("listings"),
) -> Callable[[str], Listing]:
    """Let ``create``, which lists what is in the folder with a path, keep its result for ``root``.

    ``makers`` are the files that ``create`` is made of. The result is looked for in all ``folders``
    and kept in the first one that can be written to; ``folders`` may raise OSError. What is under
    ``root`` is not read again either. If nothing can be kept, ``create`` is called.
    """
    known: dict[str, Listing] = {}

    @functools.cache
    def create_or_find(path: str) -> Listing:
        if path == root:
            listing = _find(create, root, makers, folders)
            known.update(
                (f"{root}/{name}", inner)
                for name, inner in listing.items()
                if isinstance(name, str)
            )
            return listing
        found = known.get(path)
        return create(path) if found is None else found

    return create_or_find


def _find(
    create: Callable[[str], Listing],
    root: str,
    makers: Sequence[str],
    folders: Callable[[], Sequence[Path]],
) -> Listing:
    try:
        name = f"{hashlib.sha256(root.encode()).hexdigest()[:16]}.json"
        files = [folder / name for folder in folders()]
        digest = _digest(root, [*makers, __file__])
    except OSError:
        return create(root)
    for file in files:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode(file.read_bytes(), type=_Kept)
            if found.digest == digest:
                return _listing(found.root)
    listing = create(root)
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        node = _node(listing)
        if _listing(node) == listing:  # it has a form that this file knows
            _write(files, msgspec.json.encode(_Kept(digest, node)))
    return listing


def _write(files: Iterable[Path], content: bytes) -> None:
    """Replace the first file that can be written, at once."""
    for file in files:
        with contextlib.suppress(OSError):
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                written = Path(folder) / file.name
                written.write_bytes(content)
                written.replace(file)
            return


def _digest(root: str, makers: Iterable[str]) -> str:
    """Names, sizes and times of all files of Python code under a folder, and of ``makers``."""
    files = sorted([*_files(root), *((maker, Path(maker).stat()) for maker in makers)])
    lines = [f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}" for path, stat in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)


def _node(listing: Listing) -> _Node:
    folders = {name: _node(inner) for name, inner in listing.items() if isinstance(name, str)}
    exports = [
        (sorted(needed), {module: sorted(names) for module, names in modules.items()})
        for needed, modules in listing.items()
        if isinstance(needed, frozenset)
    ]
    return _Node(folders, exports)


def _listing(node: _Node) -> Listing:
    exports: Listing = {
        frozenset(needed): {module: set(names) for module, names in modules.items()}
        for needed, modules in node.exports
    }
    return exports | {name: _listing(inner) for name, inner in node.folders.items()}
