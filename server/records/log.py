"""RequestLog: the running requests, and the last ones that have ended."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from schemas.records import RequestRecord
from server.records.record import record_of
from server.records.totals import RequestTotals
from server.records.trace import Trace

logger = logging.getLogger("roseinfer.server")

MAX_BYTES = 64 * 2**20
"""Of all kept records together, texts included."""

MAX_TEXT_SHARE = 8
"""A record whose texts are larger than this part of all bytes is kept without them."""

RECORD_SIZE = 2048
"""Bytes that a record costs at most, besides texts."""

RecordListener: TypeAlias = Callable[[RequestRecord], None]
"""Called on the event loop with each request that has ended."""


@dataclass(slots=True)
class _Shelf:
    """The records of one key, oldest first, each with its bytes."""

    records: deque[tuple[RequestRecord, int]] = field(default_factory=deque)
    num_bytes: int = 0


class RequestLog:
    """Keeps the last records of each key, up to two limits of all together. Event loop only.

    Of too many records, the key with the most gives up its oldest; of too many bytes, the key with
    the most bytes.
    """

    def __init__(self, model: str, max_records: int, max_bytes: int = MAX_BYTES) -> None:
        """``model`` is the model's id in records. ``max_records`` 0 keeps nothing."""
        self._model = model
        self._max_records, self._max_bytes = max_records, max_bytes
        self._running: dict[Trace, None] = {}
        self._shelves: dict[str, _Shelf] = {}
        self._num_records = self._num_bytes = 0
        self.totals = RequestTotals()
        """Of all requests that have ended."""
        self._listeners: list[RecordListener] = [self.totals]

    def listen(self, listener: RecordListener) -> None:
        """Call ``listener`` with each record from now on."""
        self._listeners.append(listener)

    def begin(self, trace: Trace) -> None:
        """A request begins that is to be recorded."""
        trace.recorder = self.end
        self._running[trace] = None

    def end(self, trace: Trace) -> RequestRecord:
        """A request has ended. Returns its record."""
        self._running.pop(trace, None)
        record = record_of(trace, self._model, now=trace.now, has_ended=True)
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
        shelf = self._shelves.get(key)
        if shelf is not None:
            records += [record for record, _ in shelf.records]
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
        shelf = self._shelves.get(key)
        for record, _ in () if shelf is None else reversed(shelf.records):
            if name in (record.id, record.request_id):
                return _as_seen(record)
        return None

    def _running_of(self, key: str) -> list[Trace]:
        return [trace for trace in self._running if trace.key == key]

    def _record_so_far(self, trace: Trace) -> RequestRecord:
        return record_of(trace, self._model, now=trace.now, has_ended=False)

    def _keep(self, record: RequestRecord) -> None:
        if not self._max_records:
            return
        size = RECORD_SIZE
        if record.prompt is not None or record.text is not None:
            size += _size_of(record.prompt) + _size_of(record.text)
            if size > self._max_bytes // MAX_TEXT_SHARE:
                record = msgspec.structs.replace(record, prompt=None, text=None)
                size = RECORD_SIZE
        shelf = self._shelves.get(record.key)
        if shelf is None:
            shelf = self._shelves[record.key] = _Shelf()
        shelf.records.append((record, size))
        self._count(shelf, 1, size)
        while self._num_records > self._max_records:
            self._drop_oldest_of(max(self._shelves, key=self._num_records_of))
        while self._num_bytes > self._max_bytes:
            self._drop_oldest_of(max(self._shelves, key=self._num_bytes_of))

    def _num_records_of(self, key: str) -> int:
        return len(self._shelves[key].records)

    def _num_bytes_of(self, key: str) -> int:
        return self._shelves[key].num_bytes

    def _drop_oldest_of(self, key: str) -> None:
        shelf = self._shelves[key]
        _, size = shelf.records.popleft()
        self._count(shelf, -1, -size)
        if not shelf.records:
            del self._shelves[key]

    def _count(self, shelf: _Shelf, num_records: int, num_bytes: int) -> None:
        self._num_records += num_records
        self._num_bytes += num_bytes
        shelf.num_bytes += num_bytes


def _as_seen(record: RequestRecord) -> RequestRecord:
    """What a client may know: not what others have sent."""
    miss = record.cache_miss
    if miss is None or miss.reason != "other_salt":
        return record
    return msgspec.structs.replace(
        record, cache_miss=msgspec.structs.replace(miss, reason="never_seen")
    )


def _size_of(text: str | None) -> int:
    return 0 if text is None else sys.getsizeof(text)
