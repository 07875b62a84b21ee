"""user_folders: folders for files between starts, which only this user can write to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def user_folders(kind: str) -> list[Path]:
    """Return folders for files of a kind, made where they were not there, the best one first.

    Raises OSError if there is none: the process trusts what is in them.
    """
    folders, reasons = [], []
    for folder in _candidates(kind):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
        except OSError as error:
            reasons.append(f"cannot use {folder}: {error.strerror}")
            continue
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            reasons.append(f"other users can write to {folder}")
        else:
            folders.append(folder)
    if not folders:
        raise OSError("; ".join(reasons) or f"no folder for {kind}")
    return folders


def _candidates(kind: str) -> list[Path]:
    candidates = []
    with contextlib.suppress(RuntimeError):  # the user has no home directory
        candidates.append(Path.home() / ".cache" / "roseinfer" / kind)
    with contextlib.suppress(OSError):  # no folder for temporary files can be written to
        candidates.append(Path(tempfile.gettempdir()) / f"roseinfer-{kind}-{os.getuid()}")
    return candidates
