"""The two ends of a chat: what the user types, and where answers and notes go."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from server.cli.chat.markdown import MarkdownStream, visible

MAX_HISTORY = 1000  # lines that the history file keeps
QUOTE = '"""'  # begins and ends a message of several lines
ASK, MORE = ">>> ", "... "

_DIM, _RESET = "\x1b[2m", "\x1b[0m"


def history_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the history, below XDG_CACHE_HOME or ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "roseinfer" / "chat_history"


class Prompt:
    """Reads messages from a terminal or a pipe. Main thread only."""

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source or sys.stdin
        self.is_terminal = self._source.isatty() and sys.stdout.isatty()

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
        """Let lines be edited, with those of earlier chats, where readline is. It keeps them."""
        readline: Any = None
        if self.is_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: PLC0415 - only for a terminal; not on every system
        if readline is None:
            yield
            return
        path = history_path()
        readline.set_history_length(MAX_HISTORY)
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600)
                readline.write_history_file(path)


class PlainScreen:
    """Writes thinking and answers to stdout as they come, notes and errors to stderr.

    ``is_terminal`` removes control characters from answers; a pipe gets them as they are. Thinking
    is left out of a pipe.
    """

    def __init__(self, *, is_terminal: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = is_terminal
        self._is_thinking = False
        self._last = "\n"

    def thinking(self, text: str) -> None:
        if self._is_terminal:
            self._write(("" if self._is_thinking else _DIM) + visible(text))
            self._is_thinking = True

    def text(self, text: str) -> None:
        self._end_thinking()
        self._write(visible(text) if self._is_terminal else text)

    def end(self) -> None:
        """End an answer, complete or not, with a line end."""
        self._end_thinking()
        if self._last != "\n":
            self._write("\n")

    def note(self, text: str) -> None:
        print(visible(text), file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        print(f"roseinfer: {visible(text)}", file=sys.stderr, flush=True)

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._write(_RESET + ("\n" if self._last != "\n" else "") + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._last = text[-1:] or self._last


class MarkdownScreen(PlainScreen):
    """Draws answers as Markdown on a terminal."""

    def __init__(self) -> None:
        super().__init__(is_terminal=True)
        self._console = Console(highlight=False)
        self._stream: MarkdownStream | None = None

    def text(self, text: str) -> None:
        if self._stream is None:
            super().end()  # of the thinking
            self._stream = MarkdownStream(self._console)
        self._stream.feed(text)

    def end(self) -> None:
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        super().end()

    def note(self, text: str) -> None:
        self._console.print(visible(text), style="dim", markup=False, soft_wrap=True)

    def error(self, text: str) -> None:
        self._console.print(visible(text), style="red", markup=False, soft_wrap=True)
