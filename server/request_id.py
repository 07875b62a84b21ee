"""ASGI middleware: x-request-id and x-roseinfer-ignored on responses, and the access log."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.ignored_fields import ignored_header
from server.tenants.tenant import tenant_of

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
        request_id = _client_id(scope) or uuid4().hex.encode()
        start = time.perf_counter()
        status = 499  # unless a response starts, the client has disconnected

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers: list[Any] = list(message.get("headers", []))
                elapsed_ms = int((time.perf_counter() - start) * 1000)
                headers.append((b"x-request-id", request_id))
                headers.append((b"openai-processing-ms", str(elapsed_ms).encode()))
                headers += ignored_header(scope)
                message["headers"] = headers
            return send(message)

        try:
            await app(scope, receive, send_with_id)
        finally:
            logger.info(
                "%s %s %d %.1f ms %s %s",
                scope["method"],
                quote(scope["path"]),  # the decoded path may contain a line end
                status,
                (time.perf_counter() - start) * 1000,
                tenant_of(scope).name,
                request_id.decode(),
            )

    return wrapped


def _client_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ACCEPTED.fullmatch(value):
            return bytes(value)
    return None
