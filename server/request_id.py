"""with_trace: x-request-id and x-roseinfer-ignored on responses, traces, the access log."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import uuid4

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from server.error_shapes import ID_KEY, is_anthropic
from server.errors import CUT_KEY, ERROR_KEY, APIError
from server.ignored_fields import ignored_header, ignored_names
from server.records.line import write_line
from server.records.log import RequestLog
from server.records.trace import SCOPE_KEY, Trace
from server.short_paths import METHOD_KEY
from server.stalls import StallWatch

_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids of clients that are safe in a header and in a log."""

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C's trace context: version, trace, span, flags."""


def with_trace(
    app: ASGIApp,
    stalls: Callable[[], StallWatch],
    clock: Callable[[], float] = time.perf_counter,
) -> ASGIApp:
    """Wrap ``app``, inside ``with_paths``. ``clock`` times the requests.

    A client's own id is used if it is safe. 404s of no route get an id too.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        request_id = id_of(scope["headers"])
        trace = Trace(
            method=scope.get("state", {}).get(METHOD_KEY, scope["method"]),
            path=scope["path"],
            request_id=request_id.decode(),
            traceparent=_traceparent_of(scope["headers"]),
            clock=clock,
        )
        state = scope.setdefault("state", {})
        state[ID_KEY] = trace.request_id  # for bodies of errors
        state[SCOPE_KEY] = trace

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                trace.responds(message["status"])
                headers: list[Any] = list(message.get("headers", []))
                elapsed_ms = int((trace.now - trace.start) * 1000)
                headers += id_headers(scope["path"], request_id)
                headers.append((b"openai-processing-ms", str(elapsed_ms).encode()))
                trace.ignored = ignored_names(scope)
                headers += ignored_header(trace.ignored)
                message["headers"] = headers
            elif not message.get("more_body"):
                return _send_last(send, message, trace)
            return send(message)

        watch = stalls()
        watch.enter()
        try:
            await app(scope, receive, send_with_id)
        finally:
            watch.leave()
            trace.error = state.get(CUT_KEY) or state.get(ERROR_KEY)
            write_line(trace, trace.end())
            _release(scope, trace)

    return wrapped


def _release(scope: Scope, trace: Trace) -> None:
    """Drop what refers back to the scope of a request that has ended, so that it is freed at once.

    Tracebacks of errors have frames that have the scope and the body. A body writer has the cycle.
    Under a storm of refused requests, full collections of such circles took 20 ms each.
    """
    trace.error = trace.stream = None  # a handler of logs may keep the trace
    for key in (CUT_KEY, ERROR_KEY):
        scope["state"].pop(key, None)
    scope.pop("extensions", None)  # type: ignore[misc]


async def _send_last(send: Send, message: Message, trace: Trace) -> None:
    await send(message)
    trace.is_complete = True


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The id that the client has given its request, if it is safe, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _ACCEPTED.fullmatch(value):
            return bytes(value)
    return uuid4().hex.encode()


def _traceparent_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The client's span, if the header has W3C's form."""
    for name, value in headers:
        if name == b"traceparent":
            return value.decode() if _TRACEPARENT.fullmatch(value) else None
    return None


def id_headers(path: str, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a response that contain the request's id. Anthropic's API has its own name."""
    names = [b"x-request-id", b"request-id"] if is_anthropic(path) else [b"x-request-id"]
    return [(name, request_id) for name in names]


def log_refusal(
    method: str,
    path: str,
    key: str,
    request_id: bytes,
    error: APIError,
    records: RequestLog | None,
) -> None:
    """Log a request that is refused from its head, without the application.

    With ``records``, it is recorded too.
    """
    trace = Trace(method=method, path=path, key=key, request_id=request_id.decode())
    trace.responds(error.status)
    trace.error, trace.is_complete = error, True
    write_line(trace, None if records is None else records.end(trace))
