"""StartScreen: the progress bar of a load, on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from core.load_progress import LoadProgress, LoadStage

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWS_PER_SECOND = 8
BAR_WIDTH = 36


class StartScreen:
    """Draws the stage of a load on stderr while it lasts; nothing where that is no terminal.

    Log lines appear above the bar. Main thread only; a thread of rich draws.
    """

    def __init__(self, progress: LoadProgress) -> None:
        self._progress = progress
        self._live: Any = None
        self._start = time.monotonic()

    def start(self) -> None:
        """Begin to draw."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.live import Live  # noqa: PLC0415

        self._live = Live(
            console=Console(stderr=True, highlight=False),
            get_renderable=self._render,
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()
        _log_to(sys.stderr)  # which rich has replaced

    def stop(self) -> None:
        """Remove the bar. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            _log_to(sys.stderr)

    def _render(self) -> RenderableType:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only for a terminal
        from rich.table import Table  # noqa: PLC0415

        stage = self._progress.now
        row = Table.grid(padding=(0, 2))
        bar = ProgressBar(
            total=stage.total or None,
            completed=min(stage.done, stage.total),
            width=BAR_WIDTH,
            pulse=not stage.total,
        )
        seconds = f"{time.monotonic() - self._start:.0f} s"
        row.add_row(f"{stage.name:<18}", bar, amount(stage), seconds)
        return row


def amount(stage: LoadStage) -> str:
    """How much of a stage is done; empty if that is not known."""
    if stage.is_bytes:
        done = f"{stage.done / 1e6:,.0f}"
        return f"{done} of {stage.total / 1e6:,.0f} MB" if stage.total else f"{done} MB"
    return f"{min(1.0, stage.done / stage.total):.0%}" if stage.total else ""


def _log_to(stream: Any) -> None:
    """Make the log write to what stderr is now."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(stream)
