"""Phase: what a connection is doing."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """What a connection is doing."""

    REQUEST = auto()
    """No byte of a request has arrived."""
    HEAD = auto()
    TURNED_AWAY = auto()
    """The answer is known from the head. The body is dropped."""
    BODY = auto()
    ANSWER = auto()
    LAST_ANSWER = auto()
    """The connection ends after this answer. What arrives is dropped."""
    END = auto()
    """The connection ends. What arrives is dropped."""
