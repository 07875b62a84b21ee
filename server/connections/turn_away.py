"""TurnAway: answers a request from its head, in front of the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Headers = list[tuple[bytes, bytes]]


class EarlyAnswer(Protocol):
    """Makes a whole response; ``is_last`` says that the connection ends after it."""

    def __call__(self, *, is_last: bool) -> bytes: ...


TurnAway = Callable[[bytes, bytes, Headers, tuple[str, int] | None], EarlyAnswer | None]
"""Method, URL, headers and client's address of a request to its answer; None: not from these."""

IsFull = Callable[[], bool]
"""Whether most requests are turned away now. It costs little."""
