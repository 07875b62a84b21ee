"""Refusals, and other errors, that are written without the application."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from server.http.apis import ID_KEY, api_at
from server.http.errors import CUT_KEY, INVALID, RETRY_AFTER_SECONDS, APIError

RETRYABLE = frozenset({408, 503})
"""Statuses after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """Why a connection is ended, as an error response."""

    status: int
    message: str
    code: str
    type_: str = INVALID

    def error(self) -> APIError:
        """The same as an exception."""
        return APIError(self.status, self.message, type_=self.type_, code=self.code)

    def answer(self, state: dict[str, Any]) -> bytes:
        """``response`` to the request whose scope has this ``state``, noted there for its record.

        ``state`` is empty if there is no request yet.
        """
        state[CUT_KEY] = self.error()
        return self.response(state.get(ID_KEY))

    def response(self, request_id: str | None = None) -> bytes:
        """A whole HTTP/1.1 response with OpenAI's error object. It ends the connection.

        Without a ``request_id`` it gets a new one.
        """
        may_retry = self.status in RETRYABLE
        headers = {
            "x-request-id": request_id or uuid4().hex,
            "x-should-retry": "true" if may_retry else "false",
        }
        if self.status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = str(RETRY_AFTER_SECONDS)
        return raw_response(self.error(), headers, is_last=True)


def raw_response(
    error: APIError,
    headers: Mapping[str, str],
    *,
    is_last: bool,
    path: str = "",
) -> bytes:
    """A whole HTTP/1.1 response. ``is_last`` says that the connection ends after it.

    ``path`` is the request's, empty if it is not known. ``headers`` may contain its id.
    """
    body = api_at(path).shape(error.status, error.error, headers.get("x-request-id"))
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        f"date: {_date(int(time.time()))}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if is_last:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    """As HTTP writes it."""
    return formatdate(seconds, usegmt=True)


BAD_REQUEST = HttpRefusal(400, "The bytes received are not a valid HTTP request.", "bad_request")
LONG_URL = HttpRefusal(414, "The request line is too long.", "url_too_long")
LARGE_HEAD = HttpRefusal(431, "The request's headers are too large.", "headers_too_large")
LARGE_FRAMING = HttpRefusal(
    400, "The chunks of the body are too small, or their extensions too large.", "bad_chunks"
)
LATE_HEAD = HttpRefusal(408, "The request's headers took too long to arrive.", "request_timeout")
LATE_BODY = HttpRefusal(408, "The request's body took too long to arrive.", "request_timeout")
BUSY = HttpRefusal(
    503,
    "All connections of the server are in use.",
    "server_is_overloaded",
    "service_unavailable_error",
)
