"""Rates: how fast an answer came."""

from __future__ import annotations

import time
from collections.abc import Callable

from server.chat.client import Ending


class Rates:
    """Times of one answer. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._last = self._start
        self._num_pieces = 0

    def piece(self) -> None:
        """A piece with text has come."""
        self._last = self._clock()
        self._num_pieces += 1
        if self._first is None:
            self._first = self._last

    def line(self, ending: Ending) -> str:
        """Say it in one line. Without the server's count, pieces are counted and marked so."""
        if self._first is None:
            return "no text"
        count = ending.completion_tokens
        about = "" if count is not None else "about "
        count = self._num_pieces if count is None else count
        parts = [f"{about}{count:,} tokens", f"{self._first - self._start:.2f} s to the first"]
        seconds = self._last - self._first
        if count > 1 and seconds > 0:
            parts.append(f"{about}{(count - 1) / seconds:,.1f} tokens/s")
        if ending.prompt_tokens is not None:
            parts.insert(0, f"{ending.prompt_tokens:,} tokens in the prompt")
        return ", ".join(parts)
