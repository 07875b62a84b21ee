"""with_trace: x-request-id and x-roseinfer-ignored on responses, traces, the access log.

AccessLine: a line of the access log. It is written in text or as JSON.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from schemas.records import RequestRecord, Times
from server.http.apis import ID_KEY, api_at
from server.http.errors import CUT_KEY, ERROR_KEY
from server.http.ignored_fields import ignored_header, ignored_names
from server.http.paths import METHOD_KEY
from server.observe.record import CLIENT_LEFT
from server.observe.stalls import StallWatch
from server.observe.trace import SCOPE_KEY, Trace

logger = logging.getLogger("roseinfer.access")

SHOWN_FROM = 0.05
"""Milliseconds; shorter phases are left out of a line of text."""

_UNSAID = ("error", "prompt", "text")
"""Fields of a record that may contain texts of clients: they are not logged."""


class AccessLine:
    """The message of a log record; it is made into text only if it is written."""

    __slots__ = ("_record", "_seconds", "_status", "_trace")

    def __init__(self, trace: Trace, record: RequestRecord | None, seconds: float) -> None:
        """``record`` is that of a request that is kept."""
        self._trace, self._record, self._seconds = trace, record, seconds
        status = trace.status if record is None else record.status
        self._status = CLIENT_LEFT if status is None else status  # nothing was sent

    def __str__(self) -> str:
        trace = self._trace
        # a path may contain a line end
        line = (
            f"{trace.method} {quote(trace.path)} {self._status} {self._seconds * 1000:.1f} ms "
            f"{trace.key} {trace.request_id}"
        )
        return line if self._record is None else f"{line} {_details(self._record)}"

    def fields(self) -> dict[str, Any]:
        """The same as JSON's values."""
        trace = self._trace
        fields = {
            "method": trace.method,
            "route": trace.path,
            "status": self._status,
            "duration_ms": round(self._seconds * 1000, 3),
            "key": trace.key,
            "request_id": trace.request_id,
        }
        if self._record is None:
            return fields
        record: dict[str, Any] = msgspec.to_builtins(self._record)
        return fields | {name: record[name] for name in record if name not in _UNSAID}


def write_line(trace: Trace, record: RequestRecord | None) -> None:
    """Write the line of a request that has ended."""
    logger.info(AccessLine(trace, record, trace.now - trace.start))


def _details(record: RequestRecord) -> str:
    parts = [_ending(record)]
    if record.id is not None:
        parts.append(f"id={record.id}")
    if record.stream:
        parts.append("stream")
    if record.prompt_tokens:
        parts.append(f"prompt={record.prompt_tokens} cached={record.cached_tokens}")
    miss = record.cache_miss
    if miss is not None:
        parts.append(f"miss={miss.reason}@{miss.first_differing_block}")
    if record.completion_tokens:
        parts.append(f"completion={record.completion_tokens}")
    if record.ttft_ms is not None:
        parts.append(f"ttft={record.ttft_ms:.1f}")
    parts += [
        f"{name}={milliseconds:.1f}"
        for name in Times.__struct_fields__
        if (milliseconds := getattr(record.times_ms, name)) >= SHOWN_FROM
    ]
    if record.num_steps:
        parts.append(
            f"steps={record.num_steps} batch={record.mean_batch:.1f}/{record.max_batch} "
            f"preempted={record.num_preemptions}"
        )
    return " ".join(parts)


def _ending(record: RequestRecord) -> str:
    """How it ended, in words if it did not end well."""
    match record.ended_by:
        case "client":
            words = "client left"
        case "deadline":
            words = "time over"
        case "server":
            words = "server ended it"
        case "error":
            refused = (record.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
            words = "refused" if refused else "failed"
        case None:
            return "ended"
        case who:
            return f"ended_by={who}"
    if record.completion_tokens or record.ended_by == "client":
        words += f" after {record.completion_tokens} tokens"
    return words if record.error_code in (None, "client_left") else f"{words} {record.error_code}"


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
    """The headers of a response that contain the request's id."""
    return [(name, request_id) for name in api_at(path).id_headers]
