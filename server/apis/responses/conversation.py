"""Tools and input items to those of a chat request. Runs in a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas import messages as chat
from schemas import responses_input as wire
from schemas import tools as chat_tools
from schemas.responses_request import NamespacedTool, ResponsesRequest, ToolReference
from server.apis.responses.errors import given, unsupported
from server.apis.responses.output import unsealed
from server.apis.responses.store import PlacedItem
from server.http.errors import missing

SEPARATOR = "__"
"""Between the name of a namespace and that of its function, unless the former ends with one."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a request, in order, and the path of each.

    ``names`` are those of functions in namespaces: from namespace and name to the joined name.
    """

    functions: list[chat_tools.Tool] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: ResponsesRequest) -> Tools:
        """Raises InvalidRequest for tools that are not functions."""
        tools = cls()
        for i, tool in enumerate(request.tools or ()):
            path = f"tools[{i}]"
            if tool.type != "namespace":
                tools._add(tool, path)
                continue
            namespace = given(tool.name, f"{path}.name")
            for j, inner in enumerate(tool.tools or ()):
                name = given(inner.name, f"{path}.tools[{j}].name")
                joined = namespace.removesuffix(SEPARATOR) + SEPARATOR + name
                tools.names[namespace, name] = joined
                tools._add(inner, f"{path}.tools[{j}]", joined)
        return tools

    def choice(self, request: ResponsesRequest) -> chat_tools.ToolChoice | None:
        """The choice of a chat request. Without tools, ``auto`` says nothing."""
        choice = request.tool_choice
        if isinstance(choice, str) or choice is None:
            return None if not self.functions and choice == "auto" else choice
        match choice.type:
            case "function":
                return self._chosen(choice, "tool_choice")
            case "allowed_tools":
                if choice.mode is None:
                    raise missing("tool_choice.mode")
                allowed = [
                    self._chosen(tool, f"tool_choice.tools[{i}]")
                    for i, tool in enumerate(choice.tools or ())
                ]
                return chat_tools.AllowedToolsChoice(
                    allowed_tools=chat_tools.AllowedTools(mode=choice.mode, tools=[*allowed])
                )
            case kind:
                raise unsupported("tool_choice.type", f"a choice of type '{kind[:64]}' is")

    def joined_name(self, name: str, namespace: str | None) -> str:
        """The name in the prompt of a function, perhaps of a namespace."""
        return name if namespace is None else self.names.get((namespace, name), name)

    def _add(self, tool: NamespacedTool, path: str, name: str | None = None) -> None:
        if tool.type != "function":
            raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
        definition = chat_tools.FunctionDefinition(
            name=name or given(tool.name, f"{path}.name"),
            description=tool.description,
            parameters=tool.parameters,
            strict=tool.strict,
        )
        self.functions.append(chat_tools.FunctionTool(function=definition))
        self.paths.append(path)

    def _chosen(self, tool: ToolReference, path: str) -> chat_tools.FunctionToolChoice:
        if tool.type != "function":
            raise unsupported(f"{path}.type", f"tools of type '{tool.type[:64]}' are")
        name = self.joined_name(given(tool.name, f"{path}.name"), tool.namespace)
        return chat_tools.FunctionToolChoice(function=chat_tools.ToolName(name=name))


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
    """Chat messages of input items, and the path of each in the client's body.

    A message of the assistant consists of the reasoning in front of its text, the text, and the
    calls after it.
    """

    def __init__(self, items: Sequence[PlacedItem], tools: Tools) -> None:
        """Raises InvalidRequest naming the field of an item at fault."""
        self.messages: list[chat.Message] = []
        self.paths: list[str] = []
        self._tools = tools
        self._turn: _Turn | None = None
        for placed in items:
            self._add(placed.item, placed.path)
        self._end_turn()

    def _add(self, item: wire.InputItem, path: str) -> None:
        match item.type:
            case None | "message":
                role = given(item.role, f"{path}.role")
                content = _content(item.content, f"{path}.content")
                if role == "assistant":
                    self._new_turn(path).content = content
                else:
                    self._append(ROLES[role](content=content), path)
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

    def _new_turn(self, path: str) -> _Turn:
        """The assistant's message, a new one if it has text or calls."""
        if self._turn is not None and (self._turn.content is not None or self._turn.calls):
            self._end_turn()
        return self._this_turn(path)

    def _this_turn(self, path: str) -> _Turn:
        self._turn = self._turn or _Turn(path)
        return self._turn


def _content(content: wire.InputContent | None, path: str) -> chat.Content:
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
            case wire.SummaryTextPart() | wire.ReasoningTextPart():
                continue
            case _:
                raise unsupported(
                    f"{path}[{i}].type",
                    f"this model reads text only; parts of type '{part.type}' are",
                )
    return parts


def _reasoning(item: wire.InputItem, path: str) -> str:
    """The text of earlier reasoning: itself, sealed by this server, or a summary of it."""
    if isinstance(item.content, str):
        return item.content
    text = _joined(item.content, f"{path}.content")
    if text is None and item.encrypted_content is not None:
        text = unsealed(item.encrypted_content)
    if text is None:
        text = _joined(item.summary, f"{path}.summary")
    return text or ""


def _joined(parts: Sequence[wire.InputPart] | None, path: str) -> str | None:
    """The text of parts of reasoning. None: there are none."""
    texts = []
    for i, part in enumerate(parts or ()):
        if not isinstance(part, wire.ReasoningTextPart | wire.SummaryTextPart | chat.TextPart):
            raise unsupported(f"{path}[{i}].type", f"parts of type '{part.type}' in reasoning are")
        texts.append(part.text)
    return "\n".join(texts) if texts else None
