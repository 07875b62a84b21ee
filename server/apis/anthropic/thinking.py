"""Thinking: the request's switches, and thinking of earlier turns.

Signatures of thinking in the Messages API: they can carry thinking that is not shown.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from schemas.anthropic import (
    ConversationFields,
    ThinkingBlock,
    ThinkingDisabled,
    ThinkingEnabled,
)
from schemas.limits import MAX_UNPACKED
from server.apis.anthropic.refusals import invalid

SHOWN = "roseinfer"
"""The signature of thinking that is shown. Nobody checks it, but clients require one."""

_PREFIX = "roseinfer:"

_MAX_RATIO = 1032
"""Bytes that one byte of deflate's format stands for at most (zlib, technical details)."""


class TooMuchThinking(Exception):
    """The signatures of a request carry more than MAX_UNPACKED bytes."""


def signature_of(thinking: str) -> str:
    """The signature that stands for omitted thinking, so that the next request can repeat it."""
    return _PREFIX + urlsafe_b64encode(zlib.compress(thinking.encode(), 1)).decode()


class Unpacker:
    """Unpacks the signatures of one request, to MAX_UNPACKED bytes together."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_UNPACKED

    def thinking_in(self, signature: str) -> str:
        """The thinking that a signature carries. Signatures of other servers carry none.

        Raises TooMuchThinking. A signature that cannot be unpacked counts with the most bytes that
        one of its length could hold.
        """
        if not signature.startswith(_PREFIX):
            return ""
        try:
            return self._unpacked(urlsafe_b64decode(signature.removeprefix(_PREFIX))).decode()
        except (ValueError, zlib.error):
            return ""

    def _unpacked(self, packed: bytes) -> bytes:
        if self._left < 0:
            raise TooMuchThinking
        try:
            data = zlib.decompressobj().decompress(packed, self._left + 1)  # 0: without limit
        except zlib.error:
            self._left -= min(len(packed) * _MAX_RATIO, self._left + 1)
            raise
        self._left -= len(data)
        if self._left < 0:
            raise TooMuchThinking
        return data


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
