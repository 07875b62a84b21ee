"""The two kinds of training examples: conversations and plain documents."""

from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Message: TypeAlias = dict[str, Json]


@dataclass(frozen=True)
class Exchange:
    """One question and its answer; ``skill`` names the generator."""

    skill: str
    question: str
    answer: str
    thought: str = ""


@dataclass(frozen=True)
class Conversation:
    """Messages and tools in the OpenAI format."""

    skill: str
    messages: list[Message]
    tools: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """Plain text without a chat template."""

    text: str
    skill: str = "document"


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def system(content: str) -> Message:
    return {"role": "system", "content": content}
