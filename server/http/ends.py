"""Ends of streams of other servers that have broken off: the error events of their APIs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from schemas.errors import ErrorResponse
from server.http.apis import NDJSON, SSE, api_at
from server.http.errors import APIError, stream_error


def media_type_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The content type of a response, without parameters, in lower case; empty if it has none."""
    value = next((value for name, value in headers if name == b"content-type"), b"")
    return value.partition(b";")[0].strip().lower().decode("latin-1")


def last_bytes(path: str, media_type: str, last: bytes, message: str) -> bytes | None:
    """The bytes that end a stream whose server has broken off. None: its format has none.

    ``last`` is the last piece that was sent. In the middle of an event nothing can be said either:
    the connection is cut, which no client takes for an end.
    """
    api, error = api_at(path), stream_error(message)
    body = api.shape(502, error, None)
    if media_type == NDJSON and (not last or last.endswith(b"\n")):
        return body + b"\n"
    if media_type == SSE and (not last or last.endswith((b"\n\n", b"\r\n\r\n"))):
        return api.stream_end(error, body, last)
    return None


def failure_event(path: str, error: APIError, request_id: str | None) -> bytes:
    """The event of an error that would have been a response, had the stream not begun."""
    api = api_at(path)
    return api.stream_end(error.error, api.shape(error.status, error.error, request_id), b"")


def refusal_event(path: str, body: bytes) -> bytes:
    """The event of another server's error response with this body."""
    try:
        error = msgspec.json.decode(body, type=ErrorResponse).error
    except msgspec.MsgspecError:
        error = stream_error("The server of the model has refused the request.")
    return api_at(path).stream_end(error, body, b"")
