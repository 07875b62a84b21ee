"""Token counts of a request (OpenAI API reference)."""

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel


class PromptTokensDetails(ResponseModel, frozen=True, kw_only=True):
    """`cached_tokens` is the part of prompt_tokens that came from the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(ResponseModel, frozen=True, kw_only=True):
    """`reasoning_tokens` is the part of completion_tokens that is thinking."""

    reasoning_tokens: int


class Usage(ResponseModel, frozen=True, kw_only=True):
    """Counts of tokens. total_tokens is the sum of the other two.

    Each prompt counts once, however many choices it has. Generated tokens of all choices count.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
