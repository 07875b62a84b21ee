"""The system prompt, without the line that differs in every request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.anthropic import OnlyText

BILLING = "x-anthropic-billing-header:"
"""Begins a line that Claude Code puts first. It contains a checksum of the request (``cch=``), so
no prefix of two prompts would be equal."""


def system_texts(
    system: str | Sequence[OnlyText] | None, *, keeps_billing_header: bool
) -> list[str]:
    """The texts of the system prompt that are not empty."""
    blocks = [system] if isinstance(system, str) else [block.text for block in system or ()]
    texts: Iterator[str] = iter(blocks)
    if not keeps_billing_header:
        texts = map(_without_billing, texts)
    return [text for text in texts if text]


def _without_billing(text: str) -> str:
    if not text.startswith(BILLING):
        return text
    _, _, rest = text.partition("\n")
    return rest.lstrip("\n")
