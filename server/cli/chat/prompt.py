"""Prompt: what the user types, with a history, or the lines of a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

MAX_HISTORY = 1000
"""Lines that the history file keeps."""

QUOTE = '"""'
"""Begins and ends a message of several lines."""

ASK, MORE = ">>> ", "... "


def history_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the history, below XDG_CACHE_HOME or ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "roseinfer" / "chat_history"


class Prompt:
    """Reads messages. Main thread only.

    On a terminal with readline, lines can be edited, and ``history`` keeps those of earlier chats.
    """

    def __init__(self, history: Path | None = None, source: TextIO | None = None) -> None:
        self._source = source or sys.stdin
        self.is_terminal = self._source.isatty() and sys.stdout.isatty()
        self._history = history

    def read(self) -> str | None:
        """Return the next message, None at the end of the input.

        A message that begins with three quotes goes on to the next three. Raises KeyboardInterrupt.
        """
        line = self._line(ASK)
        if line is None or not line.lstrip().startswith(QUOTE):
            return line
        text = line.lstrip()[len(QUOTE) :]
        while QUOTE not in text:
            more = self._line(MORE)
            if more is None:
                break
            text += "\n" + more
        return text.partition(QUOTE)[0].strip("\n")

    def _line(self, prompt: str) -> str | None:
        if not self.is_terminal:
            line = self._source.readline()
            return line.rstrip("\n") if line else None
        try:
            return input(prompt)
        except EOFError:
            return None

    @contextlib.contextmanager
    def kept_history(self) -> Iterator[None]:
        """Read the history, and write it at the end. Without readline nothing happens."""
        if not self.is_terminal:
            yield
            return
        try:
            import readline  # noqa: PLC0415 - only for a terminal; not on every system
        except ImportError:
            yield
            return
        readline.set_history_length(MAX_HISTORY)
        path = self._history
        if path is not None:
            with contextlib.suppress(OSError):
                readline.read_history_file(path)
        try:
            yield
        finally:
            if path is not None:
                with contextlib.suppress(OSError):
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
                    readline.write_history_file(path)
