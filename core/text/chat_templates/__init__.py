"""Chat templates of well-known forms, for models that come without one."""

from __future__ import annotations

from pathlib import Path

TEMPLATE_NAMES = (
    "alpaca",
    "chatml",
    "gemma",
    "llama2",
    "llama3",
    "mistral",
    "phi3",
    "vicuna",
    "zephyr",
)
"""Each is a file of this directory."""

PAIR_TEMPLATE_NAMES = ("qwen3-reranker",)
"""Templates of pairs of texts instead of conversations: see ``core.text.message_template``."""


def named_template(name: str) -> str | None:
    """Return the Jinja text of this name, None if there is no such one."""
    if name not in (*TEMPLATE_NAMES, *PAIR_TEMPLATE_NAMES):
        return None
    return Path(__file__).with_name(f"{name}.jinja").read_text(encoding="utf-8")
