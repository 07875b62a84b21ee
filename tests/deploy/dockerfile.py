"""Reads a Dockerfile: its stages and their instructions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """What stands between one FROM and the next."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, keyword: str) -> list[str]:
        """The arguments of all instructions with this keyword, in order."""
        return [value for key, value in self.instructions if key == keyword]

    def exec_form(self, keyword: str) -> list[str]:
        """The words of the last instruction with this keyword, which is a JSON list."""
        words: list[str] = json.loads(self.values(keyword)[-1])
        return words


def stages_of(path: Path) -> dict[str, Stage]:
    """The stages by name, in order. Lines that end in a backslash go on in the next."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    stages: dict[str, Stage] = {}
    stage = Stage("", "")  # the ARGs before the first FROM
    for line in filter(None, map(str.strip, text.splitlines())):
        keyword, _, value = line.partition(" ")
        if keyword == "FROM":
            base, _, name = value.partition(" AS ")
            stage = stages[name] = Stage(name, base)
        else:
            stage.instructions.append((keyword, value.strip()))
    return stages
