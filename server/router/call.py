"""The parts of a client's request that a router reads or changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from server.client.answer import Headers
from server.http.errors import APIError, invalid_body

MAX_PLACES = 10_000
"""Places in a body that are looked at for the field ``model``: a few milliseconds."""

PROMPT_SIZE = 1024  # bytes of a bare prompt that tell a conversation from another

MAX_BEGINNING = 128 * 1024
"""Bytes of a conversation that tell it from another: its first user message usually ends before."""

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110, section 7.6.1: headers of a connection, not of a message."""

_REPLACED = _HOP_BY_HOP | {
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"expect",
    b"host",
    b"origin",
    b"x-api-key",
    b"x-forwarded-for",
    b"x-request-id",
}
_RESPONSE_REPLACED = _HOP_BY_HOP | {
    b"date",
    b"openai-processing-ms",
    b"request-id",
    b"x-request-id",
}

# A name has 256 characters at most; the longest escape of one has twelve bytes.
_NAME = re.compile(rb'\s*+:\s*+("(?:[^"\\]|\\.){0,3072}+")')


class UpstreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a body that a router reads. Everything else is skipped, not decoded.

    The decoder takes 100 ms for 32 MiB of empty lists, and holds the event loop meanwhile: a body
    is read once for all of this.
    """

    model: str | None = None
    name: str | None = None  # the model in some of Ollama's requests
    stream: Any = None
    previous_response_id: str | None = None
    system: msgspec.Raw = msgspec.Raw()
    """This and the next are the parts that a prompt begins with, as they are written."""
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()

    @property
    def model_name(self) -> str | None:
        return self.model if self.model is not None else self.name


_decode_asked = msgspec.json.Decoder(UpstreamQuery).decode
_decode_item = json.JSONDecoder().raw_decode
_BETWEEN = frozenset(" \t\r\n,")


def request_headers(
    headers: Iterable[tuple[bytes, bytes]], *, client: str | None, request_id: str
) -> Headers:
    """The client's headers without its keys and those of its connection, and what replaces them."""
    dropped = set(_REPLACED)
    for name, value in headers:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    kept = [(n, v) for n, v in headers if n not in dropped]
    kept.append((b"x-request-id", request_id.encode()))
    if client is not None:
        kept.append((b"x-forwarded-for", client.encode("latin-1", "replace")))
    return kept


def response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an upstream's response that the client gets."""
    return [(n, v) for n, v in headers if n not in _RESPONSE_REPLACED]


def asked(body: bytes) -> UpstreamQuery:
    """Read the model's name and little else from a JSON body. Raises APIError."""
    try:
        return _decode_asked(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_body(error) from None


def with_model(body: bytes, wanted: UpstreamQuery, new: str) -> bytes:
    """The same bytes but for the model's name. ``wanted`` is what they ask. Raises APIError.

    A field of the same name inside another object stays as it is: every place that may be the field
    gets a mark, and the body is read once, to see which of them is the model's name.
    """
    key = b'"name"' if wanted.model is None else b'"model"'
    places = list(_places(body, key, wanted.model_name or ""))
    marks = {f"\0{number}": place for number, place in enumerate(places)}  # names have no controls
    tokens = [msgspec.json.encode(mark) for mark in marks]
    chosen = marks.get(_decode_asked(_replaced(body, places, tokens)).model_name or "")
    if chosen is None:
        raise APIError(400, "The field 'model' cannot be found in the body.", param="model")
    return _replaced(body, [chosen], [msgspec.json.encode(new)])


def _places(body: bytes, key: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Start and end of each value ``name`` of a field ``key``, which is in quotes."""
    at = -1
    for _ in range(MAX_PLACES):
        at = body.find(key, at + 1)
        if at < 0:
            return
        found = _NAME.match(body, at + len(key))
        with contextlib.suppress(msgspec.DecodeError):
            if found is not None and msgspec.json.decode(found[1]) == name:
                yield found.span(1)


def _replaced(body: bytes, places: Iterable[tuple[int, int]], tokens: Iterable[bytes]) -> bytes:
    """``body`` with ``tokens`` in these places, which are in order."""
    parts, end = [], 0
    for place, token in zip(places, tokens, strict=True):
        parts += [body[end : place[0]], token]
        end = place[1]
    return b"".join([*parts, body[end:]])


def conversation_key(body: bytes) -> bytes:
    """``key_of`` what is in a body; empty if it is no request."""
    try:
        return key_of(asked(body))
    except APIError:
        return b""


def key_of(parts: UpstreamQuery) -> bytes:
    """Hash what a conversation keeps: everything through its first user message.

    Empty if the body is not that of a conversation or a prompt.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        first = _through_first_user(parts.messages) or _through_first_user(parts.input)
    except RecursionError:
        return b""
    first = first or [bytes(parts.prompt)[:PROMPT_SIZE]]
    if not any(first):
        return b""
    for part in (parts.system, parts.instructions, parts.tools):
        digest.update(bytes(part) + b"\0")
    for item in first:
        digest.update(item + b"\0")
    return digest.digest()


def _through_first_user(raw: msgspec.Raw) -> list[bytes]:
    """The items through the first user's, or MAX_BEGINNING bytes of them.

    Only these are read, however long the conversation is.
    """
    data = bytes(memoryview(raw)[:MAX_BEGINNING])
    if not data.startswith(b"["):
        return [data[:PROMPT_SIZE]] if data.startswith(b'"') else []
    text = data.decode(errors="ignore")
    items: list[bytes] = []
    at = _next_item(text, 1)
    while text[at : at + 1] not in {"", "]"}:
        try:
            item, end = _decode_item(text, at)
        except ValueError:  # cut off
            return [*items, text[at:].encode()]
        items.append(text[at:end].encode())
        if isinstance(item, dict) and item.get("role") == "user":
            break
        at = _next_item(text, end)
    return items


def _next_item(text: str, at: int) -> int:
    """The position at which the next item of a list begins, or the list ends."""
    while text[at : at + 1] in _BETWEEN:
        at += 1
    return at
