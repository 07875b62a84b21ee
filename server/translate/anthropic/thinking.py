"""Thinking: the request's switches, and thinking of earlier turns."""

from __future__ import annotations

from typing import Any

from schemas.anthropic import (
    ConversationFields,
    ThinkingBlock,
    ThinkingDisabled,
    ThinkingEnabled,
)
from schemas.limits import MAX_UNPACKED
from server.thinking_signatures import TooMuchThinking, Unpacker
from server.translate.anthropic.refusals import invalid

OMITTED = "omitted"


def template_switches(request: ConversationFields) -> dict[str, Any]:
    """Variables of the chat template. Without ``thinking`` the template's default applies."""
    switches: dict[str, Any] = {}
    if request.thinking is not None:
        switches["enable_thinking"] = not isinstance(request.thinking, ThinkingDisabled)
    if request.output_config is not None and request.output_config.effort is not None:
        switches["reasoning_effort"] = request.output_config.effort
    return switches


def thinking_budget(request: ConversationFields) -> int | None:
    """The most tokens of thinking. None: no limit."""
    thinking = request.thinking
    return thinking.budget_tokens if isinstance(thinking, ThinkingEnabled) else None


def omits_thinking(request: ConversationFields) -> bool:
    """Whether the client wants thinking blocks without their text."""
    return getattr(request.thinking, "display", None) == OMITTED


def thinking_of(block: ThinkingBlock, path: str, unpacker: Unpacker) -> str:
    """The text of an earlier turn's thinking; a client that got none sends its signature back.

    Raises InvalidRequest naming the block at which the signatures of the request carry too much.
    """
    if block.thinking:
        return block.thinking
    try:
        return unpacker.thinking_in(block.signature or "")
    except TooMuchThinking:
        param = f"{path}.signature"
        raise invalid(
            f"'{param}': the signatures of a request carry at most {MAX_UNPACKED} bytes of "
            "thinking together.",
            param,
        ) from None
