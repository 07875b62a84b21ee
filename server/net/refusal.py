"""Responses that are written without the application."""

from __future__ import annotations

from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from uuid import uuid4

from server.http.apis import openai_shape
from server.http.errors import RETRY_AFTER_SECONDS, APIError

BUSY_KEY = "busy"
"""Key in the ``state`` of an ASGI scope: the request is on a connection above the limit."""

BAD_REQUEST = partial(
    APIError, 400, "The bytes received are not a valid HTTP request.", code="bad_request"
)
LONG_URL = partial(APIError, 414, "The request line is too long.", code="url_too_long")
LARGE_HEAD = partial(
    APIError, 431, "The request's headers are too large.", code="headers_too_large"
)
LARGE_FRAMING = partial(
    APIError,
    400,
    "The chunks of the body are too small, or their extensions too large.",
    code="bad_chunks",
)
LATE_HEAD = partial(
    APIError, 408, "The request's headers took too long to arrive.", code="request_timeout"
)
LATE_BODY = partial(
    APIError, 408, "The request's body took too long to arrive.", code="request_timeout"
)
BUSY = partial(
    APIError,
    503,
    "All connections of the server are in use.",
    type_="service_unavailable_error",
    code="server_is_overloaded",
)


def closing_response(error: APIError, request_id: str | None = None) -> bytes:
    """A whole HTTP/1.1 response, after which the connection ends. It has OpenAI's error object.

    Without a ``request_id`` it gets a new one.
    """
    request_id = request_id or uuid4().hex
    body = openai_shape(error.status, error.error, request_id)
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        f"date: {formatdate(usegmt=True)}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"x-request-id: {request_id}",
        f"x-should-retry: {'true' if error.status in {408, 503} else 'false'}",
    ]
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(f"retry-after: {RETRY_AFTER_SECONDS}")
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("ascii") + body
