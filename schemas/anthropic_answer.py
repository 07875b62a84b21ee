"""Answers of POST /v1/messages: the message, the events of a stream, errors, counts of tokens.

(Anthropic API reference, messages.) Keys without a meaning here are null where the API says so.
"""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class AnswerText(ResponseModel, tag_field="type", tag="text", frozen=True, kw_only=True):
    """Text."""

    text: str
    citations: None = None


class AnswerThinking(ResponseModel, tag_field="type", tag="thinking", frozen=True, kw_only=True):
    """Thinking. `thinking` is empty if the request omits it; `signature` holds it then."""

    thinking: str
    signature: str


class DirectCaller(ResponseModel, frozen=True, kw_only=True):
    """The model itself calls."""

    type: Literal["direct"] = "direct"


class AnswerToolUse(ResponseModel, tag_field="type", tag="tool_use", frozen=True, kw_only=True):
    """A call. `input` is a JSON object."""

    id: str
    name: str
    input: Any
    caller: DirectCaller = DirectCaller()


AnswerBlock: TypeAlias = AnswerText | AnswerThinking | AnswerToolUse


class CacheCreation(ResponseModel, frozen=True, kw_only=True):
    """Always zero: nobody pays for what is kept."""

    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class OutputTokensDetails(ResponseModel, frozen=True, kw_only=True):
    """`thinking_tokens` is the part of output_tokens that is thinking."""

    thinking_tokens: int


class MessageUsage(ResponseModel, frozen=True, kw_only=True):
    """Counts of tokens. The prompt has input_tokens + cache_read_input_tokens."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    cache_creation: CacheCreation = CacheCreation()
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    server_tool_use: None = None
    service_tier: Literal["standard"] = "standard"
    inference_geo: None = None


class AnthropicMessage(ResponseModel, frozen=True, kw_only=True):
    """An answer. `stop_reason` is null at the beginning of a stream only.

    `warnings` name keywords of schemas that are not enforced; a stream has them at its end.
    """

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None
    usage: MessageUsage
    warnings: list[str] | UnsetType = UNSET


class MessageStart(ResponseModel, frozen=True, kw_only=True):
    """The first event of a stream: the message without content."""

    type: Literal["message_start"] = "message_start"
    message: AnthropicMessage


class BlockStart(ResponseModel, frozen=True, kw_only=True):
    """A block begins."""

    type: Literal["content_block_start"] = "content_block_start"
    index: int
    content_block: AnswerBlock


class TextDelta(ResponseModel, tag_field="type", tag="text_delta", frozen=True, kw_only=True):
    """More text."""

    text: str


class ThinkingDelta(
    ResponseModel, tag_field="type", tag="thinking_delta", frozen=True, kw_only=True
):
    """More thinking."""

    thinking: str


class SignatureDelta(
    ResponseModel, tag_field="type", tag="signature_delta", frozen=True, kw_only=True
):
    """The signature of a thinking block, at its end."""

    signature: str


class InputDelta(
    ResponseModel, tag_field="type", tag="input_json_delta", frozen=True, kw_only=True
):
    """More of the JSON text of a call's input."""

    partial_json: str


BlockChange: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockDelta(ResponseModel, frozen=True, kw_only=True):
    """A block goes on."""

    type: Literal["content_block_delta"] = "content_block_delta"
    index: int
    delta: BlockChange


class BlockStop(ResponseModel, frozen=True, kw_only=True):
    """A block is complete."""

    type: Literal["content_block_stop"] = "content_block_stop"
    index: int


class MessageEnd(ResponseModel, frozen=True, kw_only=True):
    """Why the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    stop_details: None = None
    container: None = None


class MessageDelta(ResponseModel, frozen=True, kw_only=True):
    """The message is complete. The counts are those of the whole request."""

    type: Literal["message_delta"] = "message_delta"
    delta: MessageEnd
    usage: MessageUsage
    warnings: list[str] | UnsetType = UNSET


class MessageStop(ResponseModel, frozen=True, kw_only=True):
    """The last event of a stream."""

    type: Literal["message_stop"] = "message_stop"


class Ping(ResponseModel, frozen=True, kw_only=True):
    """An event without meaning."""

    type: Literal["ping"] = "ping"


class AnthropicErrorDetails(ResponseModel, frozen=True, kw_only=True):
    """The cause for programs, and the path of the field at fault."""

    error_code: str | None
    param: str | None


class AnthropicErrorObject(ResponseModel, frozen=True, kw_only=True):
    """An error. `message` is for people."""

    type: str
    message: str
    details: AnthropicErrorDetails | UnsetType = UNSET


class AnthropicErrorResponse(ResponseModel, frozen=True, kw_only=True):
    """The body of an error response, and the data of an error event.

    The id of the request is in the header `request-id` too. An event has none.
    """

    type: Literal["error"] = "error"
    error: AnthropicErrorObject
    request_id: str | None = None


class TokenCount(ResponseModel, frozen=True, kw_only=True):
    """Tokens of the prompt that a conversation becomes."""

    input_tokens: int


AnthropicEvent: TypeAlias = (
    MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping
)

ANTHROPIC_EVENTS = (
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
)
"""The types of the events of a stream."""
