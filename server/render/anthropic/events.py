"""Server-sent events with a name."""

from __future__ import annotations

import msgspec

from schemas.anthropic_answer import AnthropicEvent
from server import sse


def event(data: AnthropicEvent) -> bytes:
    """An event, whose name is its ``type``."""
    return event_of(data.type, data)


def event_of(name: str, data: msgspec.Struct) -> bytes:
    """An event with this name."""
    return b"event: " + name.encode() + b"\n" + sse.frame(data)
