"""POST /v1/completions (OpenAI API reference, completions)."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from schemas.base import ResponseModel
from schemas.limits import INT64_MAX, MAX_PROMPT_ITEMS
from schemas.logprobs import CompletionLogprobs, PromptLogprobs
from schemas.sampling import SamplingFields
from schemas.scalars import Int64, Text
from schemas.usage import Usage

CompletionFinishReason: TypeAlias = Literal["stop", "length", "content_filter"]

# msgspec allows one array type per union, so the four forms (text, texts, ids, lists of ids) share
# one list. The server checks that its items have one type.
PromptTokens = Annotated[list[Int64], Meta(max_length=MAX_PROMPT_ITEMS)]
Prompt: TypeAlias = (
    Text | Annotated[list[Text | Int64 | PromptTokens], Meta(max_length=MAX_PROMPT_ITEMS)]
)


class CompletionRequest(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One or more texts to continue."""

    prompt: (
        Annotated[
            Prompt,
            Meta(description="Text, texts, token ids or lists of token ids; null: an empty text."),
        ]
        | None
    ) = None
    max_tokens: (
        Annotated[
            int,
            Meta(
                ge=-1,
                le=INT64_MAX,
                description="Maximum of generated tokens; null: 16, -1: all that fit.",
            ),
        ]
        | None
    ) = None
    suffix: Annotated[Text, Meta(description="Text after the insertion.")] | None = None
    logprobs: (
        Annotated[
            int, Meta(ge=0, le=20, description="Alternatives per token; 0: the token itself.")
        ]
        | None
    ) = None
    best_of: (
        Annotated[int, Meta(ge=0, le=20, description="Candidates to choose n from; null: n.")]
        | None
    ) = None

    # Fields of chat, declared so that the server can refuse them by name.
    messages: Any = None
    top_logprobs: Any = None
    max_completion_tokens: Any = None


class CompletionChoice(ResponseModel, frozen=True, kw_only=True):
    """One continuation. Choice j of prompt p has index p * n + j.

    `finish_reason` is null in all chunks but the choice's last.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: CompletionFinishReason | None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(ResponseModel, frozen=True, kw_only=True):
    """A response that is not streamed, or one chunk of a stream.

    In chunks `usage` is absent unless requested. If requested, it is null in ordinary chunks and
    an object in the last chunk, whose `choices` is empty. `warnings` are in the last chunk of a
    choice and in the last of all: they name keywords of schemas that are not enforced.
    """

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    warnings: list[str] | UnsetType = UNSET
