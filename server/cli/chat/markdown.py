"""Markdown on a terminal, while it comes: complete blocks stay, only the last is drawn again."""

from __future__ import annotations

import time
from collections.abc import Callable

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments

REDRAW_INTERVAL = 0.08  # seconds between two drawings of the last block

_PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
"""HTML is text: a terminal shows none, and tags that a model writes must not vanish."""

_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)])


def visible(text: str) -> str:
    """Remove control characters: a model could move the cursor or retitle the window."""
    return text.translate(_CONTROLS)


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
