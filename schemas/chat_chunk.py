"""One event of a streamed chat completion (OpenAI API reference, chat completions, streaming)."""

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel
from schemas.chat import FinishReason, ServiceTier
from schemas.logprobs import ChatLogprobs, PromptLogprobs
from schemas.usage import Usage


class FunctionCallDelta(ResponseModel, frozen=True, kw_only=True):
    """Fragment of a call: the first has the whole name, the others have pieces of `arguments`."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(ResponseModel, frozen=True, kw_only=True):
    """Fragment of a tool call.

    `index` counts the calls of the choice from 0. Only the first fragment has `id` and `type`,
    because clients concatenate repeated strings. Every fragment has `function`.
    """

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionCallDelta


class ChatDelta(ResponseModel, frozen=True, kw_only=True):
    """Addition to a choice's message. Empty in the choice's last chunk.

    Only the choice's first chunk has `role`.
    """

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    function_call: FunctionCallDelta | UnsetType = UNSET


class ChatChunkChoice(ResponseModel, frozen=True, kw_only=True):
    """A choice's part of a chunk. `finish_reason` is null until the choice's last chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(ResponseModel, frozen=True, kw_only=True):
    """One chunk. All chunks have the same `id`, `created`, `model` and `system_fingerprint`.

    `usage` is absent unless requested. If requested, it is null in ordinary chunks and an object
    in the last chunk, whose `choices` is empty. `warnings` are in the last chunk of a choice and in
    the last of all: they name keywords of schemas that are not enforced.
    """

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    service_tier: ServiceTier | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
