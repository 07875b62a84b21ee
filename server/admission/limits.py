"""Limits: what all requests together may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One number for each budget. Choices and tokens run or wait; bytes are not yet translated."""

    choices: int
    body_bytes: int
    prompt_tokens: int
    output_tokens: int
    compilations: int
