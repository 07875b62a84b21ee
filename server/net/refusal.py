"""Responses that are written without the application."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, TypeAlias
from uuid import uuid4

from server.http.apis import shape_at
from server.http.errors import RETRY_AFTER_SECONDS, APIError, retry_headers
from server.observe.access_log import id_headers, id_of, log_refusal
from server.observe.log import RequestLog
from server.tenants.tenant import tenant_at

PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz"})
"""Paths of probes of health, which are answered however busy the server is."""

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


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a request before its body.

    ``path`` is as the router spells it. Names of headers are in lower case. ``client`` is None on a
    Unix socket.
    """

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    version: str = "1.1"


@dataclass(frozen=True, slots=True)
class EarlyRefusal:
    """The error that answers a request from its head, as the application would answer it.

    ``path`` is the route's. With ``records``, the request is recorded.
    """

    error: APIError
    head: Head
    path: str
    tenant: str
    records: RequestLog | None = None

    def response(self, *, is_last: bool) -> bytes:
        """The whole response, whose line is written to the access log."""
        method, path, error = self.head.method, self.path, self.error
        request_id = id_of(self.head.headers)
        log_refusal(method, path, self.tenant, request_id, error, self.records)
        ids = {name.decode(): value.decode() for name, value in id_headers(path, request_id)}
        headers = {**ids, "openai-processing-ms": "0"} | retry_headers(error)
        data = raw_response(error, headers, is_last=is_last, path=path)
        return data[: data.index(b"\r\n\r\n") + 4] if method == "HEAD" else data


Admit: TypeAlias = Callable[[Head], dict[str, Any] | EarlyRefusal]
"""Refuses a request, or returns what the application gets in the ``state`` of its ASGI scope."""


def busy_refusal(head: Head) -> EarlyRefusal | None:
    """503 for a request on a connection above the limit. None for a probe of health.

    Keys are not looked up: in the access log, the tenant is the connection's address.
    """
    if head.path in PROBES:
        return None
    error = BUSY(headers={"retry-after": str(RETRY_AFTER_SECONDS)})
    return EarlyRefusal(error, head, head.path, tenant_at(head.client).name)


def closing_response(error: APIError, request_id: str | None = None) -> bytes:
    """The response to bytes that were no request in time, after which the connection ends.

    Without a ``request_id`` it gets a new one.
    """
    headers = {
        "x-request-id": request_id or uuid4().hex,
        "x-should-retry": "true" if error.status in {408, 503} else "false",
    }
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return raw_response(error, headers, is_last=True)


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
    body = shape_at(path)(error.status, error.error, headers.get("x-request-id"))
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
