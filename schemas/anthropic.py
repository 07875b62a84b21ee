"""POST /v1/messages and /v1/messages/count_tokens: requests (Anthropic API reference, messages).

Unknown keys of nested objects, such as ``cache_control``, are ignored, as everywhere. A field of
type ``Any`` is accepted without effect or refused by the server, by name.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Raw

from schemas.base import RequestModel
from schemas.limits import (
    INT32_MAX,
    INT64_MAX,
    MAX_CALLS,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_STOP,
    MAX_TOOLS,
)
from schemas.messages import BaseMessage, Part
from schemas.scalars import (
    Description,
    FunctionName,
    Int64,
    JsonObject,
    Label,
    Priority,
    StopString,
    Text,
)


class Block(Part, frozen=True, kw_only=True):
    """Base of content blocks."""


class TextBlock(Block, tag="text", frozen=True, kw_only=True):
    """Text."""

    text: Text


class OnlyText(RequestModel, frozen=True, kw_only=True):
    """A text block where no other block may stand.

    It has no tag: a Struct with one is decoded without it where it is no member of a union.
    """

    type: Literal["text"]
    text: Text


class ThinkingBlock(Block, tag="thinking", frozen=True, kw_only=True):
    """The assistant's thinking in an earlier turn. The signature holds omitted thinking."""

    thinking: Text | None = None
    signature: Text | None = None


class RedactedThinkingBlock(Block, tag="redacted_thinking", frozen=True, kw_only=True):
    """Thinking that another server has encrypted. It is left out of the prompt."""

    data: Text | None = None


class ToolUseBlock(Block, tag="tool_use", frozen=True, kw_only=True):
    """A call of an earlier assistant turn. `input` is a JSON object."""

    id: Label
    name: Label
    input: Raw


class ImageBlock(Block, tag="image", frozen=True, kw_only=True):
    """An image. Its fields are not checked, because the server refuses the block."""

    source: Any = None


class DocumentBlock(Block, tag="document", frozen=True, kw_only=True):
    """A document. Its fields are not checked, because the server refuses the block."""

    source: Any = None


class SearchResultBlock(Block, tag="search_result", frozen=True, kw_only=True):
    """A result of a search of the client's: title, source and text."""

    source: Text
    title: Text
    content: Annotated[list[OnlyText], Meta(max_length=MAX_PARTS)]


class ToolReferenceBlock(Block, tag="tool_reference", frozen=True, kw_only=True):
    """A tool that a search of the client's has found: from here on the model sees it."""

    tool_name: Label


ResultBlock: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock
)


class ToolResultBlock(Block, tag="tool_result", frozen=True, kw_only=True):
    """The result of one call."""

    tool_use_id: Label
    content: Text | Annotated[list[ResultBlock], Meta(max_length=MAX_PARTS)] | None = None
    is_error: bool | None = None


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
)

Blocks: TypeAlias = Annotated[list[ContentBlock], Meta(max_length=MAX_PARTS)]


class MessageTurn(BaseMessage, frozen=True, kw_only=True):
    """Base of messages."""

    content: Text | Blocks


class UserTurn(MessageTurn, tag="user", frozen=True, kw_only=True):
    """A turn of the user: text, and results of calls."""


class AssistantTurn(MessageTurn, tag="assistant", frozen=True, kw_only=True):
    """An earlier answer. As the last message it is the beginning of the new one."""


class SystemTurn(MessageTurn, tag="system", frozen=True, kw_only=True):
    """Instructions in the middle of a conversation."""


Turn: TypeAlias = UserTurn | AssistantTurn | SystemTurn


class ToolDefinition(RequestModel, frozen=True, kw_only=True):
    """A tool of the client's. The server refuses every `type` but `custom`, by name.

    A custom tool needs its `input_schema`.

    A tool with `defer_loading` is not shown to the model until a `tool_reference` names it.
    """

    type: Label | None = None
    name: FunctionName
    description: Description | None = None
    input_schema: JsonObject | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Choice(RequestModel, tag_field="type", frozen=True, kw_only=True):
    """Base of tool choices."""

    disable_parallel_tool_use: bool | None = None


class AutoChoice(Choice, tag="auto", frozen=True, kw_only=True):
    """The model may call tools."""


class AnyChoice(Choice, tag="any", frozen=True, kw_only=True):
    """Some tool must be called."""


class NoChoice(Choice, tag="none", frozen=True, kw_only=True):
    """No tool may be called."""


class OneToolChoice(Choice, tag="tool", frozen=True, kw_only=True):
    """This tool must be called."""

    name: Label


Display: TypeAlias = Annotated[
    Label, Meta(description="omitted: the text of thinking is only in its signature.")
]


class ThinkingEnabled(RequestModel, tag_field="type", tag="enabled", frozen=True, kw_only=True):
    """The model thinks, with a limit."""

    budget_tokens: Annotated[int, Meta(ge=1, le=INT32_MAX, description="Maximum of tokens.")]
    display: Display | None = None


class ThinkingAdaptive(RequestModel, tag_field="type", tag="adaptive", frozen=True, kw_only=True):
    """The model thinks as long as it likes."""

    display: Display | None = None


class ThinkingBetweenTools(
    RequestModel, tag_field="type", tag="between_tools", frozen=True, kw_only=True
):
    """Treated as adaptive."""

    display: Display | None = None


class ThinkingDisabled(RequestModel, tag_field="type", tag="disabled", frozen=True, kw_only=True):
    """The model does not think."""


class JsonOutputFormat(RequestModel, frozen=True, kw_only=True):
    """The answer's text is JSON that matches a schema."""

    type: Literal["json_schema"]
    schema: JsonObject


class OutputConfig(RequestModel, frozen=True, kw_only=True):
    """How much the model thinks, and what its text must match."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonOutputFormat | None = None


class ConversationFields(RequestModel, frozen=True, kw_only=True):
    """Fields that decide the prompt."""

    model: Annotated[Label, Meta(description="Served model id.")] | None = None
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: Text | Annotated[list[OnlyText], Meta(max_length=MAX_PARTS)] | None = None
    tools: Annotated[list[ToolDefinition], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: AutoChoice | AnyChoice | NoChoice | OneToolChoice | None = None
    thinking: (
        ThinkingEnabled | ThinkingAdaptive | ThinkingBetweenTools | ThinkingDisabled | None
    ) = None
    output_config: OutputConfig | None = None
    output_format: (
        Annotated[JsonOutputFormat, Meta(description="Older spelling of output_config.format.")]
        | None
    ) = None

    # Refused, unless empty.
    thread: Any = None
    container: Any = None
    mcp_servers: Annotated[list[Any], Meta(max_length=MAX_CALLS)] | None = None
    compaction: Any = None

    # Accepted without effect.
    cache_control: Any = None
    context_management: Any = None
    betas: Any = None
    speed: Any = None
    user_profile_id: Label | None = None


class CountTokensRequest(ConversationFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation to count the tokens of."""


class MessagesRequest(ConversationFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation to continue."""

    max_tokens: Annotated[
        int,
        Meta(ge=1, le=INT64_MAX, description="Maximum of generated tokens, thinking included."),
    ]
    stream: Annotated[bool, Meta(description="Respond with server-sent events.")] | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=MAX_STOP)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2, description="0: greedy.")] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: (
        Annotated[
            int, Meta(ge=-1, le=INT32_MAX, description="Keep the k best tokens; 0 and -1: all.")
        ]
        | None
    ) = None

    # Extensions, as in chat completions.
    seed: Int64 | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    priority: Priority | None = None

    # Accepted without effect.
    metadata: Any = None
    service_tier: Any = None
    inference_geo: Any = None
    diagnostics: Any = None
    billing_policy: Any = None
    fallbacks: Any = None
    fallback_credit_token: Any = None
