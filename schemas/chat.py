"""POST /v1/chat/completions (OpenAI API reference, chat completions)."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from schemas.base import ResponseModel
from schemas.limits import INT64_MAX
from schemas.logprobs import ChatLogprobs, PromptLogprobs
from schemas.messages import Messages
from schemas.sampling import SamplingFields
from schemas.scalars import Description, JsonObject, JsonObjectList, Label
from schemas.tools import FunctionCall, FunctionCallChoice, Functions, ToolCall, ToolChoice, Tools
from schemas.usage import Usage

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

ServiceTier: TypeAlias = Literal["auto", "default", "flex", "scale", "priority", "fast"]


class ChatCompletionRequest(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation to continue."""

    messages: Messages

    # max_completion_tokens overrides max_tokens. Neither, or -1: until the context is full.
    # The server refuses 0.
    max_completion_tokens: (
        Annotated[
            int,
            Meta(
                ge=-1, le=INT64_MAX, description="Maximum of generated tokens, reasoning included."
            ),
        ]
        | None
    ) = None
    max_tokens: (
        Annotated[
            int,
            Meta(ge=-1, le=INT64_MAX, description="Deprecated spelling of max_completion_tokens."),
        ]
        | None
    ) = None

    logprobs: Annotated[bool, Meta(description="Return log-probabilities.")] | None = None
    top_logprobs: (
        Annotated[int, Meta(ge=0, le=20, description="Alternatives per token; needs logprobs.")]
        | None
    ) = None

    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: (
        Annotated[bool, Meta(description="false: at most one call per turn.")] | None
    ) = None
    functions: Functions | None = None
    function_call: FunctionCallChoice | None = None

    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    verbosity: Literal["low", "medium", "high"] | None = None

    modalities: Annotated[list[Literal["text", "audio"]], Meta(max_length=2)] | None = None
    audio: JsonObject | None = None
    prediction: JsonObject | None = None
    web_search_options: JsonObject | None = None
    moderation: JsonObject | None = None

    service_tier: ServiceTier | None = None
    store: bool | None = None
    metadata: JsonObject | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: JsonObject | None = None

    # Extensions: the chat template.
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: Description | None = None
    chat_template_kwargs: JsonObject | None = None
    documents: JsonObjectList | None = None
    mm_processor_kwargs: Any = None


class ChatMessage(ResponseModel, frozen=True, kw_only=True):
    """The message of one choice. `content` is null if it consists of tool calls only."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    function_call: FunctionCall | UnsetType = UNSET


class ChatChoice(ResponseModel, frozen=True, kw_only=True):
    """One of n choices. `stop_reason` is the stop string or stop token id that ended it."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(ResponseModel, frozen=True, kw_only=True):
    """A response that is not streamed. `created` is in Unix seconds.

    `warnings` name keywords of schemas that are not enforced.
    """

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChoice]
    usage: Usage
    service_tier: ServiceTier | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
