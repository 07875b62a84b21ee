"""AccessLine: a line of the access log. It is written in text or as JSON."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from schemas.records import RequestRecord, Times
from server.records.record import CLIENT_LEFT
from server.records.trace import Trace

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
