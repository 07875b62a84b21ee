"""Limits: what all requests together may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One number for each budget. Choices and tokens run or wait; bodies are not yet decoded.

    ``memory`` is the bytes of decoded bodies, until their answers are sent, and of whole answers.
    """

    choices: int
    body_bytes: int
    memory: int
    prompt_tokens: int
    output_tokens: int
    compilations: int
