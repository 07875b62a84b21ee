"""The response object (OpenAI API reference, responses). It repeats the request's settings."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel
from schemas.responses_items import OutputItem

ResponseStatus: TypeAlias = Literal["completed", "failed", "in_progress", "incomplete"]


class ResponseError(ResponseModel, frozen=True, kw_only=True):
    """Why a response has failed."""

    code: Literal["server_error"] = "server_error"
    message: str


class IncompleteDetails(ResponseModel, frozen=True, kw_only=True):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseInputDetails(ResponseModel, frozen=True, kw_only=True):
    """`cached_tokens` came from the prefix cache. What is written to it is not counted."""

    cached_tokens: int
    cache_write_tokens: int = 0


class ResponseOutputDetails(ResponseModel, frozen=True, kw_only=True):
    """`reasoning_tokens` is the part of output_tokens that is thinking."""

    reasoning_tokens: int


class ResponseUsage(ResponseModel, frozen=True, kw_only=True):
    """Counts of tokens. total_tokens is the sum of the other two."""

    input_tokens: int
    input_tokens_details: ResponseInputDetails
    output_tokens: int
    output_tokens_details: ResponseOutputDetails
    total_tokens: int


class ResponseFunction(ResponseModel, tag_field="type", tag="function", frozen=True, kw_only=True):
    """A function of the request."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseNamespace(
    ResponseModel, tag_field="type", tag="namespace", frozen=True, kw_only=True
):
    """A namespace of functions of the request."""

    name: str
    description: str
    tools: list[ResponseFunction]


class NamedFunction(ResponseModel, tag_field="type", tag="function", frozen=True, kw_only=True):
    """A function by its name."""

    name: str


class AllowedFunctions(
    ResponseModel, tag_field="type", tag="allowed_tools", frozen=True, kw_only=True
):
    """A subset of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


class ResponseText(ResponseModel, frozen=True, kw_only=True):
    """The form of the text: OpenAI's object of the request's `text.format`."""

    format: dict[str, Any]
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET


class ResponseReasoning(ResponseModel, frozen=True, kw_only=True):
    """What the request said about reasoning."""

    effort: str | None = None
    summary: str | None = None


class Response(ResponseModel, frozen=True, kw_only=True):
    """A response. Times are Unix seconds; `completed_at` is null until the response has ended.

    `warnings` name keywords of schemas that are not enforced, once the response has ended.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: Literal[False] = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"] = "default"
    store: bool
    temperature: float
    presence_penalty: float
    frequency_penalty: float
    text: ResponseText
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | AllowedFunctions
    tools: list[ResponseFunction | ResponseNamespace]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, Any]
    warnings: list[str] | UnsetType = UNSET


class DeletedResponse(ResponseModel, frozen=True, kw_only=True):
    """DELETE /v1/responses/{id}."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
