"""How a stream ends that cannot go on: each API has its own event for an error."""

from __future__ import annotations

import re

import msgspec

import server.apis  # noqa: F401 - registers the shapes of errors
from schemas.errors import ErrorObject, ErrorResponse
from server.http.apis import shape_at
from server.http.errors import APIError, stream_error
from server.router.upstreams.call import Headers

SSE = b"text/event-stream"
LINES = b"application/x-ndjson"

COMMENT = b": keep-alive\n\n"

RESPONSES_PATHS = frozenset({"/v1/responses", "/responses"})
_MESSAGES = frozenset({"/v1/messages", "/messages"})
_CHATS = frozenset({"/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions"})
SSE_PATHS = _CHATS | RESPONSES_PATHS | _MESSAGES
"""Where ``"stream": true`` asks for server-sent events."""

_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')


class _ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """An error in a stream of the Responses API (OpenAI API reference, responses streaming)."""

    code: str | None
    message: str
    param: str | None
    sequence_number: int


def media_type_of(headers: Headers) -> bytes:
    """The content type of a response, without parameters, in lower case; empty if it has none."""
    value = next((value for name, value in headers if name == b"content-type"), b"")
    return value.partition(b";")[0].strip().lower()


def last_bytes(path: str, media_type: bytes, last: bytes, message: str) -> bytes | None:
    """What ends a stream whose server has broken off. None: the format has nothing for it.

    ``last`` is the last piece that was sent. In the middle of an event nothing can be said either:
    the connection is cut, which no client takes for an end.
    """
    error = stream_error(message)
    if media_type == LINES and (not last or last.endswith(b"\n")):
        return shape_at("/api/")(502, error, None) + b"\n"
    if media_type == SSE and (not last or last.endswith((b"\n\n", b"\r\n\r\n"))):
        return _event(path, error, shape_at(_shaped(path))(502, error, None), last)
    return None


def failure_event(path: str, error: APIError, request_id: str | None) -> bytes:
    """The event of an error that would have been a response, had the stream not begun."""
    return _event(path, error.error, shape_at(_shaped(path))(error.status, error.error, request_id))


def refusal_event(path: str, body: bytes) -> bytes:
    """The event of an upstream's error response with this body."""
    try:
        error = msgspec.json.decode(body, type=ErrorResponse).error
    except msgspec.MsgspecError:
        error = stream_error("The server of the model has refused the request.")
    return _event(path, error, body)


def _event(path: str, error: ErrorObject, body: bytes, last: bytes = b"") -> bytes:
    if path in RESPONSES_PATHS:
        numbers = _NUMBER.findall(last)
        number = int(numbers[-1]) + 1 if numbers else 0
        body = msgspec.json.encode(_ErrorEvent(error.code, error.message, error.param, number))
    name = b"" if path in _CHATS else b"event: error\n"
    return name + b"data: " + b" ".join(body.splitlines()) + b"\n\n"


def _shaped(path: str) -> str:
    """The path that tells the shape of an error: routes have a short form."""
    return "/v1/messages" if path in _MESSAGES else path
