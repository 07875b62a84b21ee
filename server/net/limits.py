"""Limits and phases of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, times in seconds.

    A body must arrive within ``body_grace`` plus one second for each ``body_rate`` bytes.
    """

    max_head_size: int = 64 * 1024
    """Request line and headers.

    Also the most bytes of trailers, of one chunk's extensions, or beside an answer.
    """

    max_headers: int = 256
    max_url_size: int = 8 * 1024

    max_framing_size: int = 256 * 1024
    """Bytes of chunk sizes and line ends beyond the size of the body."""

    head_timeout: float = 10.0
    """From the first byte of a head to its end."""

    idle_timeout: float = 60.0
    """Before the first request, and between two."""

    body_grace: float = 30.0
    body_rate: int = 1024

    write_timeout: float = 60.0
    """For a client to read enough that the server can write again."""

    linger_timeout: float = 5.0
    """For a client to read a refusal while it is still sending. What it sends is dropped."""


class Phase(Enum):
    """What a connection is doing."""

    REQUEST = auto()
    """No byte of a request has arrived."""
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    LAST_ANSWER = auto()
    """The connection ends after this answer. What arrives is dropped."""
    END = auto()
    """The connection ends. What arrives is dropped."""
