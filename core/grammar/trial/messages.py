"""Messages between the server and a trial process.

On a pipe each one is its length (four bytes, little-endian), then msgpack.

The server sends a Setup, the child answers with an empty Verdict when it is ready. Then a Verdict
answers each Trial.
"""

from __future__ import annotations

from typing import IO, Any, TypeVar

import msgspec

from core.contract.grammar import DroppedKeyword, Grammar
from core.grammar.matcher.matchers import TokenTable

T = TypeVar("T")

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
    """The result of a trial: the text that was compiled and its size, or why it was refused.

    ``text`` is what ``MatcherFactory.of_text`` takes, without the keywords ``dropped``;
    ``num_bytes`` is the memory that the compiled grammar holds after some tokens, and
    ``bytes_per_token`` what further ones add. ``problem`` and ``code`` are an error message for the
    client and its code. ``is_memory`` and ``is_time`` say
    that memory or CPU time was not enough. The child ends after a verdict with ``is_last``.
    """

    text: str = ""
    dropped: tuple[DroppedKeyword, ...] = ()
    problem: str | None = None
    code: str | None = None
    is_memory: bool = False
    is_time: bool = False
    num_bytes: int = 0
    bytes_per_token: int = 0
    is_last: bool = False


def encode_message(message: Any) -> bytes:
    """Return the length of a message, then the message."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def decode_message(data: bytes, kind: type[T]) -> T | None:
    """Return the one message in ``data``; None while it is not complete."""
    size = int.from_bytes(data[:LENGTH_BYTES], "little")
    if len(data) != LENGTH_BYTES + size:
        return None
    return msgspec.msgpack.decode(data[LENGTH_BYTES:], type=kind)


def write_message(stream: IO[bytes], message: Any) -> None:
    """Write a message and flush the stream."""
    stream.write(encode_message(message))
    stream.flush()


def read_message(stream: IO[bytes], kind: type[T]) -> T | None:
    """Read a message of this type; None at the end of the stream."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    data = stream.read(int.from_bytes(head, "little"))
    return msgspec.msgpack.decode(data, type=kind)
