"""The two forms of Ollama's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from schemas.ollama_answer import (
    OllamaAnswer,
    OllamaAnswerCall,
    OllamaAnswerMessage,
    OllamaCalledFunction,
    OllamaChatAnswer,
    OllamaGenerateAnswer,
)
from server.parsers.message import Call, Message
from server.render.arguments import arguments_object

NewLine: TypeAlias = Callable[..., OllamaAnswer]
"""Makes an answer, or a line of one, from a message or a part of one, the number of calls before
it, and the fields that both forms have."""

NOTHING = Message(content=None, reasoning=None, calls=())


def chat_line(message: Message, num_calls: int, **fields: Any) -> OllamaAnswer:
    """A line of /api/chat."""
    return OllamaChatAnswer(
        message=OllamaAnswerMessage(
            content=message.content or "",
            thinking=message.reasoning or UNSET,
            tool_calls=_calls(message.calls, num_calls) or UNSET,
        ),
        **fields,
    )


def generate_line(message: Message, _num_calls: int, **fields: Any) -> OllamaAnswer:
    """A line of /api/generate, which knows no calls."""
    return OllamaGenerateAnswer(
        response=message.content or "", thinking=message.reasoning or UNSET, **fields
    )


def loaded_line(new_line: NewLine, model: str, reason: str) -> bytes:
    """The only line of an answer that says that the model is loaded."""
    line = new_line(NOTHING, 0, model=model, created_at=now(), done=True, done_reason=reason)
    return msgspec.json.encode(line) + b"\n"


def now() -> str:
    """The time in UTC, as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _calls(calls: Iterable[Call], num_before: int) -> list[OllamaAnswerCall]:
    return [
        OllamaAnswerCall(
            id=call.id,
            function=OllamaCalledFunction(
                index=index, name=call.name, arguments=arguments_object(call.arguments)
            ),
        )
        for index, call in enumerate(calls, start=num_before)
    ]
