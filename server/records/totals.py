"""RequestTotals: counts and times of all requests that have ended, for /metrics."""

from __future__ import annotations

from collections import Counter

from core.histogram import POWERS, Histogram
from schemas.records import RequestRecord

REQUEST_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 480.0, 960.0),
)
"""Bounds for the durations of requests and of their parts."""

MAX_ROUTES = 64
"""Routes with counts of their own. The server has fewer."""

FINISHED = frozenset({"model", "length", "stop"})
"""What ends a generation well."""


class RequestTotals:
    """A ``RecordListener``. Event loop only."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, ...]] = Counter()
        """Requests by route, status and what ended them."""
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0})
        """Choices by their finish reason."""
        self.first_token = Histogram(REQUEST_SECONDS)
        self.duration = Histogram(REQUEST_SECONDS)
        self.queue = Histogram(REQUEST_SECONDS)
        self.prefill = Histogram(REQUEST_SECONDS)
        self.decode = Histogram(REQUEST_SECONDS)
        self.prompt_tokens = Histogram((*POWERS, 32768.0, 65536.0, 131072.0))
        self.generated_tokens = Histogram((*POWERS, 32768.0, 65536.0, 131072.0))
        self._routes: set[str] = set()

    def __call__(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        status = "" if record.status is None else str(record.status)
        self.ended[self._route_of(record), status, record.ended_by or "answer"] += 1
        for reason in record.finish_reasons:
            if reason is not None:
                self.finished[reason] += 1
        if record.ttft_ms is not None:
            self.first_token.observe(record.ttft_ms / 1e3)
        if record.num_steps:
            times = record.times_ms
            self.queue.observe(times.queue / 1e3)
            self.prefill.observe(times.prefill / 1e3)
            self.decode.observe(times.decode / 1e3)
        if record.ended_by in FINISHED:
            self.duration.observe(record.duration_ms / 1e3)
            self.prompt_tokens.observe(record.prompt_tokens)
            self.generated_tokens.observe(record.completion_tokens)

    def _route_of(self, record: RequestRecord) -> str:
        """The route, or ``other``: a label must not grow with what clients send."""
        if record.route not in self._routes:
            if len(self._routes) == MAX_ROUTES:
                return "other"
            self._routes.add(record.route)
        return record.route
