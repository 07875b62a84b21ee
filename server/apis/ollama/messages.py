"""Ollama's messages to chat messages."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from core.contract.errors import InvalidRequest
from schemas.messages import (
    AssistantMessage,
    Message,
    RequestFunctionCall,
    RequestToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from schemas.ollama import OllamaMessage
from server.admission.pools import checkpoint
from server.apis.ollama.fields import refused


def chat_messages(messages: Sequence[OllamaMessage]) -> list[Message]:
    """Translate messages. Raises InvalidRequest naming one, as ``messages[2].images``.

    Calls and results that have no ids get some: a result belongs to the first call of its tool
    that has none yet.
    """
    pending = _Pending()
    result: list[Message] = []
    for i, message in enumerate(messages):
        checkpoint()
        if message.images:
            raise refused(f"messages[{i}].images", "is not supported; this model reads text only.")
        content = message.content or ""
        match message.role:
            case "system":
                result.append(SystemMessage(content=content))
            case "user":
                result.append(UserMessage(content=content))
            case "assistant":
                calls = _calls(message, i)
                pending.add(calls)
                result.append(
                    AssistantMessage(
                        content=content,
                        tool_calls=calls or None,
                        reasoning_content=message.thinking or None,
                    )
                )
            case "tool":
                call_id = message.tool_call_id or pending.take(message.tool_name)
                name = message.tool_name
                result.append(ToolMessage(content=content, tool_call_id=call_id, name=name))
    return result


def _calls(message: OllamaMessage, index: int) -> list[RequestToolCall]:
    calls = []
    for j, call in enumerate(message.tool_calls or ()):
        arguments = bytes(call.function.arguments).strip()
        if not arguments.startswith(b"{"):
            path = f"messages[{index}].tool_calls[{j}].function.arguments"
            raise InvalidRequest(f"'{path}' must be an object.", param=path, code="invalid_type")
        function = RequestFunctionCall(name=call.function.name, arguments=arguments.decode())
        calls.append(RequestToolCall(id=call.id or f"call_{index}_{j}", function=function))
    return calls


class _Pending:
    """The calls without results, in order. A call takes constant time, and so does a result."""

    def __init__(self) -> None:
        self._ids: list[str] = []  # of all calls
        self._is_taken: list[bool] = []
        self._all: deque[int] = deque()  # positions in ``_ids``, some of them taken
        self._by_name: defaultdict[str, deque[int]] = defaultdict(deque)

    def add(self, calls: Sequence[RequestToolCall]) -> None:
        for call in calls:
            position = len(self._ids)
            self._ids.append(call.id)
            self._is_taken.append(False)
            self._all.append(position)
            self._by_name[call.function.name].append(position)

    def take(self, name: str | None) -> str:
        """The id of the call that a result belongs to; empty if there is none."""
        queue = self._all if name is None else self._by_name[name]
        while queue:
            position = queue.popleft()
            if not self._is_taken[position]:
                self._is_taken[position] = True
                return self._ids[position]
        return ""
