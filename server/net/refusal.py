"""Responses that are written without the application."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from uuid import uuid4

from server.http.apis import openai_shape
from server.http.errors import JSON, RETRY_AFTER_SECONDS, APIError

BUSY_KEY = "busy"
"""Key in the ``state`` of an ASGI scope: the request is on a connection above the limit."""


def _refusal(status: int, code: str, message: str) -> Callable[[], APIError]:
    return partial(APIError, status, message, code=code)


BAD_REQUEST = _refusal(400, "bad_request", "The bytes received are not a valid HTTP request.")
LONG_URL = _refusal(414, "url_too_long", "The request line is too long.")
LARGE_HEAD = _refusal(431, "headers_too_large", "The request's headers are too large.")
LARGE_FRAMING = _refusal(
    400, "bad_chunks", "The chunks of the body are too small, or their extensions too large."
)
LATE_HEAD = _refusal(408, "request_timeout", "The request's headers took too long to arrive.")
LATE_BODY = _refusal(408, "request_timeout", "The request's body took too long to arrive.")
BUSY = partial(
    APIError,
    503,
    "All connections of the server are in use.",
    type_="service_unavailable_error",
    code="server_is_overloaded",
    headers={"retry-after": str(RETRY_AFTER_SECONDS)},
)


def closing_response(error: APIError, request_id: str | None = None) -> bytes:
    """A whole HTTP/1.1 response with OpenAI's error object, after which the connection ends."""
    request_id = request_id or uuid4().hex
    body = openai_shape(error.status, error.error, request_id)
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        f"date: {formatdate(usegmt=True)}",
        f"content-type: {JSON}",
        f"content-length: {len(body)}",
        f"x-request-id: {request_id}",
        f"x-should-retry: {'true' if error.status in {408, 503} else 'false'}",
        *(f"{name}: {value}" for name, value in error.headers.items()),
    ]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("ascii") + body
