"""Responses that are written without the application."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from uuid import uuid4

from core.contract.errors import Unavailable
from server.http.apis import openai_shape
from server.http.errors import JSON, APIError, to_api_error

BUSY_KEY = "busy"
"""Key in the ``state`` of an ASGI scope: the request is on a connection above the limit."""


def _refusal(status: int, code: str, message: str) -> Callable[[], APIError]:
    return partial(APIError, status, message, code=code)


bad_request = _refusal(400, "bad_request", "The bytes received are not a valid HTTP request.")
long_url = _refusal(414, "url_too_long", "The request line is too long.")
large_head = _refusal(431, "headers_too_large", "The request's headers are too large.")
large_framing = _refusal(
    400, "bad_chunks", "The chunks of the body are too small, or their extensions too large."
)
late_head = _refusal(408, "request_timeout", "The request's headers took too long to arrive.")
late_body = _refusal(408, "request_timeout", "The request's body took too long to arrive.")
busy = partial(to_api_error, Unavailable("All connections of the server are in use."))


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
