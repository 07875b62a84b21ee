"""Limits: what all requests together may hold."""

from __future__ import annotations

from dataclasses import dataclass

from server.settings import Settings

HELD_BODIES = 4
"""Bodies of the largest size that may be held at once, until they are translated."""


@dataclass(frozen=True, slots=True)
class Limits:
    """One number for each budget."""

    choices: int
    body_bytes: int
    prompt_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(
            choices=settings.engine.max_num_seqs + settings.max_queued_requests,
            body_bytes=HELD_BODIES * settings.max_body_size,
            prompt_tokens=settings.max_queued_prompt_tokens,
            output_tokens=settings.max_queued_output_tokens,
        )
