"""Log-probabilities (OpenAI API reference; prompt_logprobs from vLLM).

All values are finite. Minus infinity is written as LOGPROB_FLOOR.
"""

from typing import TypeAlias

from schemas.base import ResponseModel

LOGPROB_FLOOR = -9999.0


class TopLogprob(ResponseModel, frozen=True, kw_only=True):
    """One alternative at a position. `bytes` are the token's raw bytes."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(ResponseModel, frozen=True, kw_only=True):
    """The sampled token at a position and its alternatives in descending order.

    `bytes` are the token's raw bytes, which may be part of a character.
    """

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(ResponseModel, frozen=True, kw_only=True):
    """`logprobs` of a chat choice: one entry per generated token."""

    content: list[TokenLogprob] | None
    refusal: list[TokenLogprob] | None = None


class CompletionLogprobs(ResponseModel, frozen=True, kw_only=True):
    """`logprobs` of a completion choice: four lists of equal length.

    token_logprobs[i] equals the token's value in top_logprobs[i]. Both are null for the first token
    of an echoed prompt. text_offset counts code points from the start of the text.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(ResponseModel, frozen=True, kw_only=True):
    """Log-probability of one token at a prompt position. `rank` 1 is the most likely token."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


PromptLogprobs: TypeAlias = list[dict[int, PromptLogprob] | None]
"""A map from token id per prompt position; null at the first position."""
