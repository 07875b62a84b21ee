"""with_trace: x-request-id and x-roseinfer-ignored on responses, traces, the access log."""

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
from server.observe.log import FINISHED
from server.observe.stalls import StallWatch
from server.observe.trace import CLIENT_LEFT, SCOPE_KEY, Trace

logger = logging.getLogger("roseinfer.access")

SHOWN_FROM = 0.05  # milliseconds; shorter phases are left out of a line of text
_UNSAID = ("error", "prompt", "text")  # may contain texts of clients, which are not logged


class AccessLine:
    """A line of the access log; it is made into text or JSON only if it is written."""

    __slots__ = ("_milliseconds", "_record", "_status", "_trace")

    def __init__(self, trace: Trace, record: RequestRecord | None) -> None:
        """The line of a request that ends now. ``record`` is that of a request that is kept."""
        self._trace, self._record = trace, record
        self._milliseconds = (trace.clock() - trace.start) * 1000
        status = trace.status if record is None else record.status
        self._status = CLIENT_LEFT if status is None else status  # nothing was sent

    def __str__(self) -> str:
        trace = self._trace
        # a path may contain a line end
        line = (
            f"{trace.method} {quote(trace.path)} {self._status} {self._milliseconds:.1f} ms "
            f"{trace.key} {trace.request_id}"
        )
        return line if self._record is None else f"{line} {_details(self._record)}"

    def fields(self) -> dict[str, Any]:
        trace = self._trace
        fields = {
            "method": trace.method,
            "route": trace.path,
            "status": self._status,
            "duration_ms": round(self._milliseconds, 3),
            "key": trace.key,
            "request_id": trace.request_id,
        }
        if self._record is None:
            return fields
        record: dict[str, Any] = msgspec.to_builtins(self._record)
        return fields | {name: record[name] for name in record if name not in _UNSAID}


def _details(record: RequestRecord) -> str:
    miss, times = record.cache_miss, record.times_ms
    prompt = f"prompt={record.prompt_tokens} cached={record.cached_tokens}"
    steps = (
        f"steps={record.num_steps} batch={record.mean_batch:.1f}/{record.max_batch} "
        f"preempted={record.num_preemptions}"
    )
    parts = (
        _ending(record),
        "" if record.id is None else f"id={record.id}",
        "stream" if record.stream else "",
        prompt if record.prompt_tokens else "",
        "" if miss is None else f"miss={miss.reason}@{miss.first_differing_block}",
        f"completion={record.completion_tokens}" if record.completion_tokens else "",
        "" if record.ttft_ms is None else f"ttft={record.ttft_ms:.1f}",
        *(
            f"{name}={getattr(times, name):.1f}"
            for name in Times.__struct_fields__
            if getattr(times, name) >= SHOWN_FROM
        ),
        steps if record.num_steps else "",
    )
    return " ".join(filter(None, parts))


_ENDINGS = {"client": "client left", "deadline": "time over", "server": "server ended it"}


def _ending(record: RequestRecord) -> str:
    """The end of a request, in words if it did not end well."""
    ended_by = record.ended_by
    if ended_by is None:
        return "ended"
    if ended_by in FINISHED:
        return f"ended_by={ended_by}"
    refused = (record.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
    words = _ENDINGS.get(ended_by, "refused" if refused else "failed")
    if record.completion_tokens or ended_by == "client":
        words += f" after {record.completion_tokens} tokens"
    return words if record.error_code in (None, "client_left") else f"{words} {record.error_code}"


_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,128}")  # ids that are safe in a header and in a log
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C's trace context: version, trace, span, flags."""


def with_trace(
    app: ASGIApp,
    stalls: Callable[[], StallWatch],
    clock: Callable[[], float] = time.perf_counter,
) -> ASGIApp:
    """Wrap ``app``, inside ``with_paths``. ``clock`` times the requests, also those of no route."""

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
                elapsed_ms = int((trace.clock() - trace.start) * 1000)
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
            logger.info(AccessLine(trace, trace.end()))
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
    given = next((value for name, value in headers if name == b"traceparent"), b"")
    return given.decode() if _TRACEPARENT.fullmatch(given) else None


def id_headers(path: str, request_id: bytes) -> list[tuple[bytes, bytes]]:
    return [(name, request_id) for name in api_at(path).id_headers]
