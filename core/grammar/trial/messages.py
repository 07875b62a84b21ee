"""What the server and a trial process say to each other, as msgpack after its length."""

from __future__ import annotations

from typing import IO, Any

import msgspec

from core.contract.grammar import Grammar
from core.grammar.matchers import TokenTable

LENGTH_BYTES = 4


class Setup(msgspec.Struct, frozen=True, array_like=True):
    """The first message to a child.

    A trial may use ``cpu_seconds`` of CPU time, or last ``max_seconds``, and take ``num_bytes`` of
    memory besides what the process uses already.
    """

    table: TokenTable
    cpu_seconds: float
    max_seconds: float
    num_bytes: int


class Trial(msgspec.Struct, frozen=True, array_like=True):
    """A grammar to compile."""

    grammar: Grammar


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """How a trial went: the compiled text and what it cost, or a problem for the client.

    ``num_bytes`` is the memory that the compiled grammar holds, ``cpu_seconds`` what the trial
    took. ``is_memory`` and ``is_time`` say that memory or time was not enough. After a verdict that
    ``is_last`` the child ends.
    """

    text: str = ""
    problem: str | None = None
    code: str | None = None
    is_memory: bool = False
    is_time: bool = False
    num_bytes: int = 0
    cpu_seconds: float = 0.0
    is_last: bool = False


def encode_message(message: Any) -> bytes:
    """Return a message after its length."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def write_message(stream: IO[bytes], message: Any) -> None:
    """Write a message after its length."""
    stream.write(encode_message(message))
    stream.flush()


def read_message(stream: IO[bytes], kind: type[Any]) -> Any:
    """Read a message of this type; None at the end of the stream."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    data = stream.read(int.from_bytes(head, "little"))
    return msgspec.msgpack.decode(data, type=kind)
