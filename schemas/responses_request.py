"""POST /v1/responses (OpenAI API reference, responses, create)."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from schemas.base import RequestModel
from schemas.chat import ReasoningEffort
from schemas.formats import JsonObjectFormat, TextFormat
from schemas.limits import (
    INT32_MAX,
    INT64_MAX,
    MAX_ITEMS,
    MAX_TOOLS,
)
from schemas.responses_input import Input
from schemas.scalars import (
    Description,
    FunctionName,
    Int64,
    JsonObject,
    JsonObjectList,
    Label,
    Name,
    Priority,
    StopStrings,
    Text,
)

Include: TypeAlias = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]


class TextJsonSchema(RequestModel, tag_field="type", tag="json_schema", frozen=True, kw_only=True):
    """JSON that matches a schema."""

    name: Name
    description: Description | None = None
    schema: JsonObject | None = None
    strict: bool | None = None


class TextOptions(RequestModel, frozen=True, kw_only=True):
    """The form of the answer's text."""

    format: TextFormat | JsonObjectFormat | TextJsonSchema | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(RequestModel, frozen=True, kw_only=True):
    """How much the model thinks, and whether that is reported as a summary."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Label | None = None


class NamespacedTool(RequestModel, frozen=True, kw_only=True):
    """A tool of a namespace. Only functions are supported."""

    type: Label
    name: FunctionName | None = None
    description: Description | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class ResponsesTool(NamespacedTool, frozen=True, kw_only=True):
    """A function, or a namespace of functions. The server refuses other types by name."""

    tools: Annotated[list[NamespacedTool], Meta(max_length=MAX_TOOLS)] | None = None


class ToolReference(RequestModel, frozen=True, kw_only=True):
    """A tool by its type and name."""

    type: Label
    name: Label | None = None
    namespace: Label | None = None


class ResponsesToolChoice(ToolReference, frozen=True, kw_only=True):
    """`function` with its name, or `allowed_tools` with a mode and the tools."""

    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[ToolReference], Meta(max_length=MAX_TOOLS)] | None = None


class ResponsesStreamOptions(RequestModel, frozen=True, kw_only=True):
    """Options of a stream."""

    include_obfuscation: bool | None = None
    """Accepted without effect: events are never padded."""


class ResponsesRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response to create."""

    model: Annotated[Label, Meta(description="Served model id.")]
    input: Input | None = None
    instructions: (
        Annotated[Text, Meta(description="A system message in front of the conversation.")] | None
    ) = None
    previous_response_id: (
        Annotated[Label, Meta(description="A stored response whose conversation goes on.")] | None
    ) = None
    store: (
        Annotated[bool, Meta(description="Keep the response for later; default true.")] | None
    ) = None
    include: Annotated[list[Include], Meta(max_length=MAX_ITEMS)] | None = None
    truncation: (
        Annotated[
            Literal["auto", "disabled"],
            Meta(description="auto: leave out the oldest turns if the context is full."),
        ]
        | None
    ) = None
    max_output_tokens: (
        Annotated[
            int,
            Meta(
                ge=1, le=INT64_MAX, description="Maximum of generated tokens, reasoning included."
            ),
        ]
        | None
    ) = None
    max_tool_calls: (
        Annotated[
            int, Meta(ge=1, le=INT64_MAX, description="Of built-in tools; this server has none.")
        ]
        | None
    ) = None

    tools: Annotated[list[ResponsesTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponsesToolChoice | None = None
    parallel_tool_calls: (
        Annotated[bool, Meta(description="false: at most one call per turn.")] | None
    ) = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None

    temperature: Annotated[float, Meta(ge=0, le=2, description="0: greedy.")] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_logprobs: (
        Annotated[int, Meta(ge=0, le=20, description="Alternatives per token.")] | None
    ) = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None

    stream: Annotated[bool, Meta(description="Respond with server-sent events.")] | None = None
    stream_options: ResponsesStreamOptions | None = None

    metadata: JsonObject | None = None
    service_tier: (
        Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None
    ) = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: JsonObject | None = None
    client_metadata: JsonObject | None = None
    user: Label | None = None

    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    context_management: JsonObjectList | None = None
    moderation: Any = None

    # Extensions, with the meaning they have in chat completions.
    seed: Int64 | None = None
    stop: StopStrings | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.001, le=1000)] | None = None
    thinking_token_budget: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    priority: Priority | None = None
    cache_salt: (
        Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]*$")] | None
    ) = None
    chat_template_kwargs: JsonObject | None = None
