"""Input items to chat messages. Runs in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.messages import (
    AssistantMessage,
    Content,
    ContentPart,
    DeveloperMessage,
    InputTextPart,
    Message,
    OutputTextPart,
    RefusalPart,
    RequestFunctionCall,
    RequestToolCall,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from schemas.responses_input import InputContent, InputItem, ReasoningTextPart, SummaryTextPart
from server.apis.responses.errors import missing, unsupported
from server.apis.responses.items import unsealed

ROLES: Mapping[str, type[UserMessage | SystemMessage | DeveloperMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item, and its path in the client's body, as ``input[3]``."""

    item: InputItem
    path: str


@dataclass(slots=True)
class PlacedMessages:
    """Chat messages, and the path of each."""

    messages: list[Message] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def add(self, message: Message, path: str) -> None:
        self.messages.append(message)
        self.paths.append(path)


@dataclass(slots=True)
class _Turn:
    """Neighbouring items of the assistant, which are one message: reasoning, text, calls."""

    path: str
    reasoning: list[str] = field(default_factory=list)
    content: Content | None = None
    calls: list[RequestToolCall] = field(default_factory=list)

    def message(self) -> AssistantMessage:
        return AssistantMessage(
            content="" if self.content is None and not self.calls else self.content,
            reasoning_content="".join(self.reasoning) or None,
            tool_calls=self.calls or None,
        )


class _Builder:
    """Collects messages. ``names``: from namespace and function to the name in the prompt."""

    def __init__(self, names: Mapping[tuple[str, str], str]) -> None:
        self.conversation = PlacedMessages()
        self._names = names
        self._turn: _Turn | None = None

    def add(self, placed: PlacedItem) -> None:
        """Add an item. Raises InvalidRequest naming the field."""
        item, path = placed.item, placed.path
        match item.type:
            case None | "message":
                self._add_message(item, path)
            case "reasoning":
                turn = self._turn_of(path, is_begun=lambda t: t.content is not None or t.calls)
                turn.reasoning.append(_reasoning(item, path))
            case "function_call":
                self._turn_of(path).calls.append(self._call(item, path))
            case "function_call_output":
                self.end_turn()
                output = item.output
                if output is None:
                    raise missing(f"{path}.output")
                message = ToolMessage(
                    content=_content(output, f"{path}.output"),
                    tool_call_id=_given(item.call_id, f"{path}.call_id"),
                )
                self.conversation.add(message, path)
            case kind:
                raise unsupported(f"{path}.type", f"items of type '{kind[:64]}' are")

    def end_turn(self) -> None:
        """The next item begins a message of its own."""
        if self._turn is not None:
            self.conversation.add(self._turn.message(), self._turn.path)
            self._turn = None

    def _add_message(self, item: InputItem, path: str) -> None:
        role = item.role
        if role is None:
            raise missing(f"{path}.role")
        if item.content is None:
            raise missing(f"{path}.content")
        content = _content(item.content, f"{path}.content")
        if role == "assistant":
            turn = self._turn_of(path, is_begun=lambda t: t.content is not None or t.calls)
            turn.content = content
            return
        self.end_turn()
        self.conversation.add(ROLES[role](content=content), path)

    def _turn_of(
        self, path: str, is_begun: Callable[[_Turn], object] = lambda _turn: False
    ) -> _Turn:
        """The assistant's message, a new one if ``is_begun`` says that it has gone too far."""
        if self._turn is not None and is_begun(self._turn):
            self.end_turn()
        if self._turn is None:
            self._turn = _Turn(path)
        return self._turn

    def _call(self, item: InputItem, path: str) -> RequestToolCall:
        name = _given(item.name, f"{path}.name")
        if item.namespace is not None:
            name = self._names.get((item.namespace, name), name)
        return RequestToolCall(
            id=_given(item.call_id, f"{path}.call_id"),
            function=RequestFunctionCall(name=name, arguments=item.arguments),
        )


def conversation_of(
    items: Sequence[PlacedItem], names: Mapping[tuple[str, str], str]
) -> PlacedMessages:
    """The messages of these items. Raises InvalidRequest naming the field.

    A message of the assistant consists of the reasoning in front of its text, the text, and the
    calls after it.
    """
    builder = _Builder(names)
    for placed in items:
        builder.add(placed)
    builder.end_turn()
    return builder.conversation


def _content(content: InputContent, path: str) -> Content:
    if isinstance(content, str):
        return content
    parts: list[ContentPart | str] = []
    for i, part in enumerate(content):
        match part:
            case InputTextPart() | OutputTextPart() | TextPart() | RefusalPart():
                parts.append(part)
            case SummaryTextPart() | ReasoningTextPart():
                continue
            case _:
                raise unsupported(
                    f"{path}[{i}].type",
                    f"this model reads text only; parts of type '{part.type}' are",
                )
    return parts


def _reasoning(item: InputItem, path: str) -> str:
    """The text of earlier reasoning: itself, sealed by this server, or a summary of it."""
    content = item.content or ()
    if isinstance(content, str):
        return content
    for parts, place in ((content, "content"), (item.summary or (), "summary")):
        texts = []
        for i, part in enumerate(parts):
            if not isinstance(part, ReasoningTextPart | SummaryTextPart | TextPart):
                raise unsupported(
                    f"{path}.{place}[{i}].type", f"parts of type '{part.type}' in reasoning are"
                )
            texts.append(part.text)
        if texts:
            return "\n".join(texts)
        if place == "content" and item.encrypted_content is not None:
            text = unsealed(item.encrypted_content)
            if text is not None:
                return text
    return ""


def _given(value: str | None, param: str) -> str:
    if value is None:
        raise missing(param)
    return value
