"""Trace: what is known of one request while it is served."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from schemas.records import RequestRecord
from server.bridge.stream import ResponseStream
from server.http.errors import APIError
from server.observe.texts import Texts

SCOPE_KEY = "trace"
"""Key in the ``state`` of an ASGI scope."""

Phase: TypeAlias = Literal["waiting", "upload", "worker", "engine", "delivery"]


class Trace:
    """Marks and facts of one request, from its head to the last byte. Event loop only.

    A request is in one phase at a time. What it did in the phase ``engine`` is known to the engine.
    """

    __slots__ = (
        "_clock",
        "_phase",
        "_since",
        "choices_per_prompt",
        "error",
        "has_left",
        "id",
        "ignored",
        "is_complete",
        "is_streamed",
        "key",
        "method",
        "num_prompt_tokens",
        "parameters",
        "path",
        "recorder",
        "request_id",
        "seconds",
        "start",
        "started_at",
        "status",
        "stream",
        "submitted_at",
        "texts",
        "traceparent",
    )

    def __init__(
        self,
        *,
        method: str = "",
        path: str = "",
        key: str = "",
        request_id: str = "",
        traceparent: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``clock`` is the engine's."""
        self._clock = clock
        self.method, self.path = method, path
        self.key, self.request_id = key, request_id
        self.traceparent = traceparent
        """The client's span that this request is a part of, in W3C's form."""
        self.start = self._since = clock()
        self.started_at = time.time()
        """Unix seconds of ``start``."""
        self._phase: Phase = "waiting"
        self.seconds: dict[Phase, float] = {}
        self.recorder: Callable[[Trace], RequestRecord] | None = None
        """Makes the record at the end, if the request is to have one."""
        self.status: int | None = None
        """The status that was sent."""
        self.is_complete = False
        """Whether the last byte was sent."""
        self.has_left = False
        """Whether the client has left before that."""
        self.error: APIError | None = None
        """What was answered in place of the answer."""
        self.id: str | None = None
        self.ignored: list[str] = []
        """Parts of the request without effect."""
        self.is_streamed = False
        self.parameters: dict[str, Any] = {}
        self.num_prompt_tokens = 0
        self.choices_per_prompt = 1
        self.stream: ResponseStream | None = None
        self.submitted_at: float | None = None
        """When the engine got it, in seconds of the clock."""
        self.texts: Texts | None = None

    @property
    def now(self) -> float:
        """Seconds of the clock."""
        return self._clock()

    def enter(self, phase: Phase) -> None:
        """The next phase begins."""
        now = self._clock()
        self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def waits(self) -> None:
        """It waits for a worker."""
        self.enter("waiting")

    def works(self) -> None:
        """A worker has begun."""
        self.enter("worker")

    def submitted(self, stream: ResponseStream) -> None:
        """The engine has it. No other phase follows."""
        self.enter("engine")
        self.stream, self.submitted_at = stream, self._since

    def responds(self, status: int) -> None:
        """The response begins."""
        self.status = status
        if self.stream is None:
            self.enter("delivery")

    def end(self) -> RequestRecord | None:
        """The last byte was sent, or the client has left. Returns its record if it has one."""
        return None if self.recorder is None else self.recorder(self)

    def times(self, now: float) -> dict[Phase, float]:
        """Seconds of all phases until now."""
        return {
            **self.seconds,
            self._phase: self.seconds.get(self._phase, 0.0) + now - self._since,
        }


def trace_of(scope: Any) -> Trace:
    """The trace of an HTTP scope; a new one if nobody follows the request."""
    trace: Trace | None = scope.setdefault("state", {}).get(SCOPE_KEY)
    return Trace() if trace is None else trace
