"""Verdict: whether a model's spec was proved exact, and files that remember it.

A file is named after a digest of all that the verdict depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import core
from core.kernels.cpu.compiler import variant
from core.system.user_folders import user_folders

logger = logging.getLogger("roseinfer.core")

SHIPPED = Path(sys.prefix) / "share" / "roseinfer" / "verdicts"
"""The verdicts of an environment that was proved when it was made, as in the container image."""

_PACKAGES = ("torch", "transformers", "safetensors")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is empty if the spec is exact. ``seconds`` is how long the proof took."""

    is_exact: bool
    reason: str
    is_remembered: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        how = " (remembered)" if self.is_remembered else f" ({self.seconds:.1f} s)"
        return f"proved exact{how}" if self.is_exact else f"not proved exact{how}: {self.reason}"


def key_of(twin: Mapping[str, Any]) -> str:
    """The name of a twin's verdict: a digest of its values, our code, packages and the CPU's kind.

    The code is all of ``core``: a proof runs the whole engine. Raises OSError if it cannot be read.
    """
    root = Path(core.__file__).parent
    digest = hashlib.sha256(json.dumps(twin, sort_keys=True).encode())
    digest.update(repr([(name, version(name)) for name in _PACKAGES] + [variant()]).encode())
    for file in sorted(root.rglob("*")):
        if file.suffix in {".py", ".cpp", ".h"}:
            digest.update(f"\0{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def recall(key: str) -> Verdict | None:
    """The verdict that a file remembers; None if there is none."""
    folders = [SHIPPED]
    with contextlib.suppress(OSError):
        folders = [*user_folders("verdicts"), SHIPPED]
    for folder in folders:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads((folder / f"{key}.json").read_text("utf-8"))
            reason, seconds = str(found["reason"]), float(found["seconds"])
            return Verdict(found["is_exact"] is True, reason, True, seconds)
    return None


def remember(key: str, verdict: Verdict, folder: Path | None = None) -> None:
    """Write a verdict into a folder, else into the user's cache. Logs where it cannot."""
    fields = {name: getattr(verdict, name) for name in ("is_exact", "reason", "seconds")}
    reasons = []
    try:
        folders = user_folders("verdicts") if folder is None else [folder]
    except OSError as error:
        folders, reasons = [], [str(error)]
    for each in folders:
        try:
            with tempfile.TemporaryDirectory(dir=each) as temporary:
                written = Path(temporary) / "verdict"
                written.write_text(json.dumps(fields), "utf-8")
                written.replace(each / f"{key}.json")
        except OSError as error:
            reasons.append(f"cannot write to {each}: {error.strerror}")
        else:
            return
    logger.info("the model's proof runs at each start: %s", "; ".join(reasons))
