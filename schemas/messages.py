"""A conversation: messages are a union tagged by `role`, content parts one tagged by `type`.

(OpenAI API reference, chat completions, messages.) Unknown keys of messages and parts are
ignored; an unknown role or part type does not decode.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from schemas.base import RequestModel
from schemas.limits import MAX_CALLS, MAX_MESSAGES, MAX_PARTS
from schemas.scalars import JsonObject, Label, Text


class Part(RequestModel, tag_field="type", frozen=True, kw_only=True):
    """Base of content parts."""

    @property
    def type(self) -> str:
        """The part's `type` on the wire."""
        return str(self.__struct_config__.tag)


class TextPart(Part, tag="text", frozen=True, kw_only=True):
    """Text."""

    text: Text


class InputTextPart(Part, tag="input_text", frozen=True, kw_only=True):
    """Text in the Responses API's spelling."""

    text: Text


class OutputTextPart(Part, tag="output_text", frozen=True, kw_only=True):
    """Text of an earlier answer in the Responses API's spelling."""

    text: Text


class RefusalPart(Part, tag="refusal", frozen=True, kw_only=True):
    """The assistant's refusal in an earlier turn."""

    refusal: Text


class ThinkingPart(Part, tag="thinking", frozen=True, kw_only=True):
    """The assistant's reasoning in an earlier turn."""

    thinking: Text | None = None


class ReasoningPart(Part, tag="reasoning", frozen=True, kw_only=True):
    """The assistant's reasoning in an earlier turn, in the Responses API's spelling."""

    text: Text | None = None


class ImageUrlPart(Part, tag="image_url", frozen=True, kw_only=True):
    """An image. Its fields are not checked, because the server refuses the part."""

    image_url: Any = None


class InputAudioPart(Part, tag="input_audio", frozen=True, kw_only=True):
    """Audio. Its fields are not checked, because the server refuses the part."""

    input_audio: Any = None


class FilePart(Part, tag="file", frozen=True, kw_only=True):
    """A file. Its fields are not checked, because the server refuses the part."""

    file: Any = None


ContentPart: TypeAlias = (
    TextPart
    | InputTextPart
    | OutputTextPart
    | RefusalPart
    | ThinkingPart
    | ReasoningPart
    | ImageUrlPart
    | InputAudioPart
    | FilePart
)

Content: TypeAlias = Text | Annotated[list[ContentPart | Text], Meta(max_length=MAX_PARTS)]
"""A string, or parts; a bare string among the parts is a text part."""


class RequestFunctionCall(RequestModel, frozen=True, kw_only=True):
    """The function call of an earlier assistant turn. `arguments` is JSON as text, or an object."""

    name: Label
    arguments: Text | JsonObject | None = None


class RequestToolCall(RequestModel, frozen=True, kw_only=True):
    """One tool call of an earlier assistant turn."""

    id: Label
    type: Literal["function"] | None = None
    function: RequestFunctionCall


class BaseMessage(RequestModel, tag_field="role", frozen=True, kw_only=True):
    """Base of messages."""

    @property
    def role(self) -> str:
        """The message's `role` on the wire."""
        return str(self.__struct_config__.tag)


class DeveloperMessage(BaseMessage, tag="developer", frozen=True, kw_only=True):
    """Instructions: the newer name of `system`."""

    content: Content
    name: Label | None = None


class SystemMessage(BaseMessage, tag="system", frozen=True, kw_only=True):
    """Instructions."""

    content: Content
    name: Label | None = None


class UserMessage(BaseMessage, tag="user", frozen=True, kw_only=True):
    """A turn of the user."""

    content: Content
    name: Label | None = None


class AssistantMessage(BaseMessage, tag="assistant", frozen=True, kw_only=True):
    """An earlier answer. `content` may be missing if there is something else, such as calls."""

    content: Content | None = None
    name: Label | None = None
    refusal: Text | None = None
    tool_calls: Annotated[list[RequestToolCall], Meta(max_length=MAX_CALLS)] | None = None
    function_call: RequestFunctionCall | None = None
    audio: JsonObject | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None


class ToolMessage(BaseMessage, tag="tool", frozen=True, kw_only=True):
    """The result of one tool call."""

    content: Content | None
    tool_call_id: Label
    name: Label | None = None


class FunctionMessage(BaseMessage, tag="function", frozen=True, kw_only=True):
    """The result of a function call: the deprecated form of `tool`."""

    content: Text | None
    name: Label


Message: TypeAlias = (
    DeveloperMessage
    | SystemMessage
    | UserMessage
    | AssistantMessage
    | ToolMessage
    | FunctionMessage
)

Messages = Annotated[
    list[Message],
    Meta(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation, oldest message first."
    ),
]
