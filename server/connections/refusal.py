"""Refusals that are written without the application: there is no valid request to give it."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from uuid import uuid4

from server.errors import INVALID, APIError, encode_error

RETRYABLE = frozenset({408, 503})
"""Statuses after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is ended, as an error response."""

    status: int
    message: str
    code: str
    type_: str = INVALID

    def response(self) -> bytes:
        """A whole HTTP/1.1 response with OpenAI's error object. It ends the connection."""
        error = APIError(self.status, self.message, type_=self.type_, code=self.code)
        body = encode_error(error.error)
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"date: {formatdate(usegmt=True)}\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            f"x-request-id: {uuid4().hex}\r\n"
            f"x-should-retry: {'true' if self.status in RETRYABLE else 'false'}\r\n"
            "connection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


BAD_REQUEST = Refusal(400, "The bytes received are not a valid HTTP request.", "bad_request")
LONG_URL = Refusal(414, "The request line is too long.", "url_too_long")
LARGE_HEAD = Refusal(431, "The request's headers are too large.", "headers_too_large")
LARGE_FRAMING = Refusal(
    400, "The chunks of the body are too small, or their extensions too large.", "bad_chunks"
)
LATE_HEAD = Refusal(408, "The request's headers took too long to arrive.", "request_timeout")
LATE_BODY = Refusal(408, "The request's body took too long to arrive.", "request_timeout")
BUSY = Refusal(
    503,
    "All connections of the server are in use.",
    "server_is_overloaded",
    "service_unavailable_error",
)
