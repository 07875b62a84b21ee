"""Logits processors, one file each, and the order in which they apply."""

from __future__ import annotations

from core.sampling.processors.allowed_tokens import AllowedTokens
from core.sampling.processors.bad_words import BadWords
from core.sampling.processors.bias import Bias
from core.sampling.processors.min_tokens import MinTokens
from core.sampling.processors.penalties import Penalties
from core.sampling.processors.protocol import LogitsProcessor


def default_processors(eos_token_ids: tuple[int, ...]) -> tuple[LogitsProcessor, ...]:
    """Return bias and masks first, then penalties."""
    return (Bias(), AllowedTokens(), BadWords(), MinTokens(eos_token_ids), Penalties())
