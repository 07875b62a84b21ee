"""Screens: where answers and notes go."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from rich.console import Console

from server.cli.chat.markdown import MarkdownStream, visible

_DIM, _RESET = "\x1b[2m", "\x1b[0m"


class Screen(Protocol):
    """Shows one answer at a time, and notes between answers."""

    def thinking(self, text: str) -> None:
        """Show a piece of the thinking before an answer."""

    def text(self, text: str) -> None:
        """Show a piece of an answer."""

    def end(self) -> None:
        """The answer is over, complete or not."""

    def note(self, text: str) -> None:
        """Say something about the chat."""

    def error(self, text: str) -> None:
        """Say what went wrong, in one line."""


class PlainScreen:
    """Writes answers as they come to stdout. Notes and errors go to stderr.

    ``is_terminal`` removes control characters from answers; a pipe gets them as they are. Thinking
    is left out of a pipe.
    """

    def __init__(self, *, is_terminal: bool, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = is_terminal
        self._is_thinking = False
        self._last = "\n"

    def thinking(self, text: str) -> None:
        """See Screen."""
        if self._is_terminal:
            self._write(("" if self._is_thinking else _DIM) + visible(text))
            self._is_thinking = True

    def text(self, text: str) -> None:
        """See Screen."""
        self._end_thinking()
        self._write(visible(text) if self._is_terminal else text)

    def end(self) -> None:
        """See Screen. An answer ends with a line end."""
        self._end_thinking()
        if self._last != "\n":
            self._write("\n")

    def note(self, text: str) -> None:
        """See Screen."""
        print(visible(text), file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        """See Screen."""
        print(f"roseinfer: {visible(text)}", file=sys.stderr, flush=True)

    def _end_thinking(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._write(_RESET + ("\n" if self._last != "\n" else "") + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._last = text[-1:] or self._last


class MarkdownScreen:
    """Draws answers as Markdown on a terminal."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._plain = PlainScreen(is_terminal=True)
        self._stream: MarkdownStream | None = None

    def thinking(self, text: str) -> None:
        """See Screen."""
        self._plain.thinking(text)

    def text(self, text: str) -> None:
        """See Screen."""
        if self._stream is None:
            self._plain.end()  # of the thinking
            self._stream = MarkdownStream(self._console)
        self._stream.feed(text)

    def end(self) -> None:
        """See Screen."""
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        self._plain.end()

    def note(self, text: str) -> None:
        """See Screen."""
        self._console.print(visible(text), style="dim", markup=False, soft_wrap=True)

    def error(self, text: str) -> None:
        """See Screen."""
        self._console.print(visible(text), style="red", markup=False, soft_wrap=True)


def screen_for(*, plain: bool) -> Screen:
    """The screen that suits where stdout goes."""
    if sys.stdout.isatty() and not plain:
        return MarkdownScreen()
    return PlainScreen(is_terminal=sys.stdout.isatty())
