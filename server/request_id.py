"""ASGI middleware: x-request-id and x-roseinfer-ignored on responses, and the access log."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Iterable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.error_shapes import ID_KEY, is_anthropic
from server.ignored_fields import ignored_header
from server.tenants.tenant import Tenant, tenant_of

logger = logging.getLogger("roseinfer.access")

_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids of clients that are safe in a header and in a log."""


def with_request_id(app: ASGIApp) -> ASGIApp:
    """Wrap ``app``, inside ``with_tenant``.

    A client's own id is used if it is safe. 404s of no route get an id too.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        request_id = id_of(scope["headers"])
        scope.setdefault("state", {})[ID_KEY] = request_id.decode()  # for bodies of errors
        start = time.perf_counter()
        status = 499  # unless a response starts, the client has disconnected

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers: list[Any] = list(message.get("headers", []))
                elapsed_ms = int((time.perf_counter() - start) * 1000)
                headers += id_headers(scope["path"], request_id)
                headers.append((b"openai-processing-ms", str(elapsed_ms).encode()))
                headers += ignored_header(scope)
                message["headers"] = headers
            return send(message)

        try:
            await app(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            request = f"{scope['method']} {quote(scope['path'])}"  # a path may contain a line end
            log_access(request, status, seconds, tenant_of(scope), request_id)

    return wrapped


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The id that the client has given its request, if it is safe, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _ACCEPTED.fullmatch(value):
            return bytes(value)
    return uuid4().hex.encode()


def id_headers(path: str, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a response that contain the request's id. Anthropic's API has its own name."""
    names = [b"x-request-id", b"request-id"] if is_anthropic(path) else [b"x-request-id"]
    return [(name, request_id) for name in names]


def log_access(
    request: str, status: int, seconds: float, tenant: Tenant, request_id: bytes
) -> None:
    """Write a line of the access log. ``request`` is a method and a quoted path."""
    logger.info(
        "%s %d %.1f ms %s %s", request, status, seconds * 1000, tenant.name, request_id.decode()
    )
