"""The outputs of one choice as deltas, the same for every API that has messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from core.contract.messages import StepOutput
from server.parsers.base import CallBegin, Content, Delta, Reasoning
from server.parsers.tool.parser import CallParser
from server.rendering.base import Envelope, Renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How a choice's text becomes a message.

    ``new_parser`` makes the tool-call parser of one choice. None: all text is content.
    ``call_finish_reason`` is the finish reason of a choice that made calls and then stopped.
    """

    new_parser: Callable[[], CallParser] | None = None
    call_finish_reason: Literal["stop", "tool_calls"] = "tool_calls"
    shows_reasoning: bool = True


NewRenderer: TypeAlias = Callable[[Envelope, ChatOptions], Renderer]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class ChoiceDeltas:
    """Parses one choice. Feed it every output of the choice in order, or one merged output."""

    __slots__ = ("_options", "_parser", "has_calls")

    def __init__(self, options: ChatOptions) -> None:
        self._options = options
        self._parser = options.new_parser and options.new_parser()
        self.has_calls = False

    @property
    def is_plain(self) -> bool:
        """Whether the text of outputs is content as it is."""
        return self._parser is None

    def feed(self, output: StepOutput) -> list[Delta]:
        """What the output adds to the message. All thinking comes before any text."""
        deltas: list[Delta] = []
        if output.thinking and self._options.shows_reasoning:
            deltas.append(Reasoning(output.thinking))
        if self._parser is not None:
            deltas += self._parser.feed(output.text)
            if output.is_last:
                deltas += self._parser.finish()
        elif output.text:
            deltas.append(Content(output.text))
        if not self.has_calls:
            self.has_calls = any(isinstance(delta, CallBegin) for delta in deltas)
        return deltas

    def finish_reason(self, output: StepOutput) -> FinishReason:
        """Why the choice ended with this last output. ``length`` stays ``length`` after calls."""
        assert output.finish_reason is not None
        if self.has_calls and output.finish_reason == "stop":
            return self._options.call_finish_reason
        return output.finish_reason


def arguments_object(text: str) -> Any:
    """A call's arguments as a JSON object; those that the limit of tokens has cut become {}."""
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    return msgspec.Raw(text.encode() if is_object else b"{}")
