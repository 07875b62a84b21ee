"""RequestLog: the running requests, and the last ones that have ended."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from core.observe.histogram import POWERS, Histogram
from schemas.records import RequestRecord
from server.observe.trace import Trace, record_of
from server.tenants.shelves import Shelves

REQUEST_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 480.0, 960.0),
)
"""Bounds for the durations of requests and of their parts."""

FINISHED = frozenset({"model", "length", "stop"})  # what ends a generation well


class RequestTotals:
    """Counts and times of all requests that have ended, for /metrics. Event loop only."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, ...]] = Counter()
        """Requests by route (one of this server's), status and what ended them."""
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0})
        self.first_token = Histogram(REQUEST_SECONDS)
        self.duration = Histogram(REQUEST_SECONDS)
        self.queue = Histogram(REQUEST_SECONDS)
        self.prefill = Histogram(REQUEST_SECONDS)
        self.decode = Histogram(REQUEST_SECONDS)
        self.prompt_tokens = Histogram((*POWERS, 32768.0, 65536.0, 131072.0))
        self.generated_tokens = Histogram((*POWERS, 32768.0, 65536.0, 131072.0))

    def __call__(self, record: RequestRecord) -> None:
        status = "" if record.status is None else str(record.status)
        self.ended[record.route, status, record.ended_by or "answer"] += 1
        self.finished.update(reason for reason in record.finish_reasons if reason is not None)
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


logger = logging.getLogger("roseinfer.server")

MAX_BYTES = 64 * 2**20  # of all kept records together, texts included
MAX_TEXT_SHARE = 8  # a record whose texts are larger than this part of that is kept without them
RECORD_SIZE = 2048  # bytes that a record costs at most, besides texts

RecordListener: TypeAlias = Callable[[RequestRecord], None]  # called on the event loop


class RequestLog:
    """Keeps the last records of each key, as Shelves do. Event loop only."""

    def __init__(self, model: str, max_records: int, max_bytes: int = MAX_BYTES) -> None:
        """``model`` is the model's id in records. ``max_records`` 0 keeps nothing."""
        self._model = model
        self._max_bytes = max_bytes
        self._running: dict[Trace, None] = {}
        self._records: Shelves[int, RequestRecord] = Shelves(max_records, max_bytes)
        self._num_ended = 0
        self.totals = RequestTotals()
        self._listeners: list[RecordListener] = [self.totals]

    def listen(self, listener: RecordListener) -> None:
        self._listeners.append(listener)

    def begin(self, trace: Trace) -> None:
        trace.recorder = self.end
        self._running[trace] = None

    def end(self, trace: Trace) -> RequestRecord:
        self._running.pop(trace, None)
        record = record_of(trace, self._model, now=trace.clock(), has_ended=True)
        self._keep(record)
        for listener in self._listeners:
            try:
                listener(record)
            except Exception:  # it must not keep the request from its end
                logger.exception("a listener failed on a record")
        return record

    def latest(self, key: str, limit: int) -> list[RequestRecord]:
        """The newest requests of a key, running ones included, without texts."""
        running = sorted(self._running_of(key), key=lambda trace: trace.started_at, reverse=True)
        records = [self._record_so_far(trace) for trace in running[:limit]]
        records += self._records.newest_of(key)
        records.sort(key=lambda record: record.started_at, reverse=True)
        return [
            msgspec.structs.replace(_as_seen(record), prompt=None, text=None)
            for record in records[:limit]
        ]

    def find(self, key: str, name: str) -> RequestRecord | None:
        """The newest request of a key with this response id or request id."""
        for trace in reversed(self._running_of(key)):
            if name in (trace.id, trace.request_id):
                return _as_seen(self._record_so_far(trace))
        for record in self._records.newest_of(key):
            if name in (record.id, record.request_id):
                return _as_seen(record)
        return None

    def _running_of(self, key: str) -> list[Trace]:
        return [trace for trace in self._running if trace.key == key]

    def _record_so_far(self, trace: Trace) -> RequestRecord:
        return record_of(trace, self._model, now=trace.clock(), has_ended=False)

    def _keep(self, record: RequestRecord) -> None:
        texts = [text for text in (record.prompt, record.text) if text is not None]
        size = RECORD_SIZE + sum(map(sys.getsizeof, texts))
        if size > self._max_bytes // MAX_TEXT_SHARE:
            record = msgspec.structs.replace(record, prompt=None, text=None)
            size = RECORD_SIZE
        self._num_ended += 1  # ids are the clients', so they may repeat
        self._records.put(record.key, self._num_ended, record, size)


def _as_seen(record: RequestRecord) -> RequestRecord:
    """The record without what other clients have sent."""
    miss = record.cache_miss
    if miss is None or miss.reason != "other_salt":
        return record
    seen = msgspec.structs.replace(miss, reason="never_seen")
    return msgspec.structs.replace(record, cache_miss=seen)
