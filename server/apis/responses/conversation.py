"""Input items to chat messages. Runs in a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas import messages as chat
from schemas.responses_input import (
    InputContent,
    InputItem,
    InputPart,
    ReasoningTextPart,
    SummaryTextPart,
)
from server.apis.responses.errors import given, unsupported
from server.apis.responses.output import unsealed
from server.apis.responses.store import PlacedItem
from server.apis.responses.tools import Tools
from server.http.errors import missing

ROLES: Mapping[str, type[chat.UserMessage | chat.SystemMessage | chat.DeveloperMessage]] = {
    "user": chat.UserMessage,
    "system": chat.SystemMessage,
    "developer": chat.DeveloperMessage,
}


@dataclass(slots=True)
class _Turn:
    """Neighbouring items of the assistant, which are one message: reasoning, text, calls."""

    path: str
    reasoning: list[str] = field(default_factory=list)
    content: chat.Content | None = None
    calls: list[chat.RequestToolCall] = field(default_factory=list)


class Conversation:
    """Chat messages, and the path of each in the client's body.

    A message of the assistant consists of the reasoning in front of its text, the text, and the
    calls after it.
    """

    def __init__(self, tools: Tools) -> None:
        self.messages: list[chat.Message] = []
        self.paths: list[str] = []
        self._tools = tools
        self._turn: _Turn | None = None

    @classmethod
    def of(cls, items: Sequence[PlacedItem], tools: Tools) -> Conversation:
        """The messages of these items. Raises InvalidRequest naming the field."""
        conversation = cls(tools)
        for placed in items:
            conversation._add(placed.item, placed.path)
        conversation._end_turn()
        return conversation

    def _add(self, item: InputItem, path: str) -> None:
        match item.type:
            case None | "message":
                self._add_message(item, path)
            case "reasoning":
                self._new_turn(path).reasoning.append(_reasoning(item, path))
            case "function_call":
                name = given(item.name, f"{path}.name")
                function = chat.RequestFunctionCall(
                    name=self._tools.joined_name(name, item.namespace), arguments=item.arguments
                )
                call_id = given(item.call_id, f"{path}.call_id")
                call = chat.RequestToolCall(id=call_id, function=function)
                self._this_turn(path).calls.append(call)
            case "function_call_output":
                content = _content(item.output, f"{path}.output")
                call_id = given(item.call_id, f"{path}.call_id")
                self._append(chat.ToolMessage(content=content, tool_call_id=call_id), path)
            case kind:
                raise unsupported(f"{path}.type", f"items of type '{kind[:64]}' are")

    def _append(self, message: chat.Message, path: str) -> None:
        """Add a message behind the assistant's turn, which has ended."""
        self._end_turn()
        self.messages.append(message)
        self.paths.append(path)

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            message = chat.AssistantMessage(
                content="" if turn.content is None and not turn.calls else turn.content,
                reasoning_content="".join(turn.reasoning) or None,
                tool_calls=turn.calls or None,
            )
            self._append(message, turn.path)

    def _add_message(self, item: InputItem, path: str) -> None:
        role = given(item.role, f"{path}.role")
        content = _content(item.content, f"{path}.content")
        if role == "assistant":
            self._new_turn(path).content = content
        else:
            self._append(ROLES[role](content=content), path)

    def _new_turn(self, path: str) -> _Turn:
        """The assistant's message, a new one if it has text or calls."""
        if self._turn is not None and (self._turn.content is not None or self._turn.calls):
            self._end_turn()
        return self._this_turn(path)

    def _this_turn(self, path: str) -> _Turn:
        if self._turn is None:
            self._turn = _Turn(path)
        return self._turn


def _content(content: InputContent | None, path: str) -> chat.Content:
    if content is None:
        raise missing(path)
    if isinstance(content, str):
        return content
    parts: list[chat.ContentPart | str] = []
    for i, part in enumerate(content):
        match part:
            case (
                chat.InputTextPart() | chat.OutputTextPart() | chat.TextPart() | chat.RefusalPart()
            ):
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
    if isinstance(item.content, str):
        return item.content
    text = _joined(item.content, f"{path}.content")
    if text is None and item.encrypted_content is not None:
        text = unsealed(item.encrypted_content)
    if text is None:
        text = _joined(item.summary, f"{path}.summary")
    return text or ""


def _joined(parts: Sequence[InputPart] | None, path: str) -> str | None:
    """The text of parts of reasoning. None: there are none."""
    texts = []
    for i, part in enumerate(parts or ()):
        if not isinstance(part, ReasoningTextPart | SummaryTextPart | chat.TextPart):
            raise unsupported(f"{path}[{i}].type", f"parts of type '{part.type}' in reasoning are")
        texts.append(part.text)
    return "\n".join(texts) if texts else None
