"""ChatOptions: what translation tells the renderer of an API with messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from server.parsers.base import Parser
from server.render.base import Renderer
from server.render.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How a choice's text becomes a message.

    ``new_parser`` makes the tool-call parser of one choice. None: all text is content.
    ``call_finish_reason`` is the finish reason of a choice that made calls and then stopped.
    """

    new_parser: Callable[[], Parser] | None = None
    call_finish_reason: Literal["stop", "tool_calls"] = "tool_calls"
    shows_reasoning: bool = True


NewRenderer: TypeAlias = Callable[[Envelope, ChatOptions], Renderer]
"""Makes the renderer of one response."""
