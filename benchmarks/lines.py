"""Lines of result files, and the machines of their sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]


def machine_names(lines: Sequence[Line]) -> dict[str, str]:
    """The machine of each session, by the session's id."""
    return {
        line["session"]: machine_name(line["machine"])
        for line in lines
        if line["kind"] == "session"
    }


def machine_name(machine: Line) -> str:
    """The properties of a machine by which results are grouped."""
    features = ", ".join(machine["features"]) or "features unknown"
    return f"{features}; {machine['cores']} cores"


def read_lines(paths: Iterable[Path]) -> list[Line]:
    """Read the lines of files, in order. Raises OSError and JSONDecodeError."""
    return [
        json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines() if line
    ]
