"""Thinking tags of the model families. core.text.thinking finds them in the output."""

from __future__ import annotations

from typing import NamedTuple


class ThinkingTags(NamedTuple):
    begin: str
    end: str


THINKING_TAGS = {
    "think": ThinkingTags("<think>", "</think>"),  # DeepSeek R1, Qwen 3, QwQ
    "mistral": ThinkingTags("[THINK]", "[/THINK]"),  # Magistral
}
"""The tags of each family, as in ``--reasoning-parser``."""


def detect(chat_template: str | None) -> str | None:
    """The family whose tags a chat template contains, if any; the last that has them."""
    for name, tags in reversed(THINKING_TAGS.items()):
        if any(tag in (chat_template or "") for tag in tags):
            return name
    return None
