"""The two ends of a chat: what the user types, and where answers and notes go."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments

MAX_HISTORY = 1000  # lines that the history file keeps
QUOTE = '"""'  # begins and ends a message of several lines
ASK, MORE = ">>> ", "... "
REDRAW_INTERVAL = 0.08  # seconds between two drawings of the last block

_PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
"""HTML is text: a terminal shows none, and tags that a model writes must not vanish."""

_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)])

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
        while QUOTE not in text and (more := self._line(MORE)) is not None:
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


def visible(text: str) -> str:
    """Remove control characters: a model could move the cursor or retitle the window."""
    return text.translate(_CONTROLS)


class PlainScreen:
    """Writes thinking and answers to stdout as they come, notes and errors to stderr.

    A pipe gets the control characters of answers, and no thinking.
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


def split_blocks(text: str) -> list[str]:
    """Split Markdown into its blocks. More text can change only the last one.

    A line without its end may become anything, so it begins no block. Joined they are the text.
    """
    starts = [
        token.map[0]
        for token in _PARSER.parse(text[: text.rfind("\n") + 1])
        if token.level == 0 and token.nesting >= 0 and token.map
    ]
    *whole, rest = text.split("\n")  # the parser knows no other line ends
    lines = [*(f"{line}\n" for line in whole), rest]
    ends = [*starts[1:], len(lines)]
    return ["".join(lines[i:j]) for i, j in zip([0, *starts[1:]], ends, strict=True)]


class MarkdownStream:
    """One answer. ``clock`` returns seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._pending = ""
        self._drawn_at = -REDRAW_INTERVAL
        self._has_printed = False
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def feed(self, text: str) -> None:
        """Add text, and draw if it is time to."""
        self._pending += visible(text)
        now = self._clock()
        if now - self._drawn_at < REDRAW_INTERVAL:
            return
        self._drawn_at = now
        *complete, self._pending = split_blocks(self._pending)
        self._live.start()
        for block in complete:
            self._print(block)
        tail = self._lines(self._pending)[-max(1, self._console.height - 2) :]
        self._live.update(_joined(tail), refresh=True)  # as much as the screen shows

    def end(self) -> None:
        """Print what is left. The text may end anywhere."""
        self._live.stop()
        for block in split_blocks(self._pending + "\n"):
            self._print(block)
        self._pending = ""

    def _print(self, block: str) -> None:
        """Print a block, with an empty line before it unless it is the first."""
        lines = self._lines(block)
        texts = ["".join(segment.text for segment in line).strip() for line in lines]
        shown = [index for index, text in enumerate(texts) if text]
        if not shown:
            return
        before: list[list[Segment]] = [[]] if self._has_printed else []
        self._console.print(_joined(before + lines[shown[0] : shown[-1] + 1]), end="")
        self._has_printed = True

    def _lines(self, markup: str) -> list[list[Segment]]:
        options = self._console.options.update(height=None)
        return self._console.render_lines(_Text(markup), options, pad=False)


def _joined(lines: list[list[Segment]]) -> Segments:
    return Segments([segment for line in lines for segment in (*line, Segment.line())])


class _Text(Markdown):
    """rich's Markdown, by our parser."""

    def __init__(self, markup: str) -> None:
        super().__init__("")
        self.markup = markup
        self.parsed = _PARSER.parse(markup)


class MarkdownScreen(PlainScreen):
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
