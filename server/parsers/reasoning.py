"""Thinking tags of the model families. core.text.thinking finds them in the output."""

from __future__ import annotations

from typing import NamedTuple


class ThinkingTags(NamedTuple):
    begin: str
    end: str


_FAMILIES = {
    "think": ThinkingTags("<think>", "</think>"),  # DeepSeek R1, Qwen 3, QwQ
    "mistral": ThinkingTags("[THINK]", "[/THINK]"),  # Magistral
}

REASONING_PARSERS = tuple(_FAMILIES)
"""The names of the families."""


def thinking_tags(name: str) -> ThinkingTags:
    """The tags of a family. Raises ValueError for an unknown name."""
    if name not in _FAMILIES:
        message = f"no reasoning parser is called {name!r}; there are {', '.join(_FAMILIES)}"
        raise ValueError(message)
    return _FAMILIES[name]


def detect(chat_template: str | None) -> str | None:
    """The family whose tags a chat template contains, if any."""
    if chat_template is None:
        return None
    for name in ("mistral", "think"):
        if any(tag in chat_template for tag in _FAMILIES[name]):
            return name
    return None
