"""Server-sent events with a name."""

from __future__ import annotations

from schemas.anthropic_answer import AnthropicEvent
from server import sse


def event(data: AnthropicEvent) -> bytes:
    """An event, whose name is its ``type``."""
    return sse.named_frame(data.type, data)
