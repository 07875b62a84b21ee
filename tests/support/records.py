"""Traces of requests as they stand at their end, and records of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.contract.messages import PrefixMiss, StepOutput, Work
from schemas.records import RequestRecord, Times
from server.bridge.stream import ResponseStream
from server.observe.trace import Trace, record_of
from tests.support.clock import Clock
from tests.support.engines import request

WORK = Work(
    started_at=101.0,
    first_token_at=102.0,
    until=105.0,
    num_steps=4,
    num_rows=10,
    max_rows=3,
    num_prompt_tokens=20,
    num_cached_tokens=16,
    num_output_tokens=4,
    miss=PrefixMiss("evicted", 1),
)
"""What the engine did for four tokens of a prompt of 20."""


def trace_with(
    *,
    start: float = 100.0,
    status: int | None = 200,
    is_complete: bool = True,
    **facts: Any,
) -> Trace:
    """A trace that begins at ``start``; its clock stands still."""
    trace = Trace(
        method="POST", path="/v1/chat/completions", key="k", request_id="rid", clock=Clock(start)
    )
    trace.status, trace.is_complete = status, is_complete
    for name, value in facts.items():
        setattr(trace, name, value)
    return trace


def stream_of(*lasts: StepOutput | Work | None) -> ResponseStream:
    """A stream of so many choices: their last outputs, or what was done for them so far.

    Only on an event loop.
    """
    live = {str(i): last for i, last in enumerate(lasts) if isinstance(last, Work)}
    requests = [request(str(i)) for i in range(len(lasts))]
    stream = ResponseStream(
        requests, on_close=lambda _: None, is_engine_ready=lambda: True, work_of=live.get
    )
    for i, last in enumerate(lasts):
        if isinstance(last, StepOutput):
            stream.push(i, last)
            stream.ended(i, last)
    return stream


def submit(trace: Trace, stream: ResponseStream, *, at: float) -> None:
    """The engine gets the stream's requests at this time."""
    trace.submitted(stream)
    trace.submitted_at = at


def record_at(trace: Trace, now: float, *, has_ended: bool = True) -> RequestRecord:
    return record_of(trace, "model", now=now, has_ended=has_ended)


def attributed(times: dict[str, float] | Any) -> float:
    """Milliseconds that have a place."""
    values = times if isinstance(times, dict) else {n: getattr(times, n) for n in names(times)}
    return sum(value for name, value in values.items() if name != "other")


def names(times: Any) -> Sequence[str]:
    return times.__struct_fields__


def ended(**fields: Any) -> RequestRecord:
    """The record of a chat of four tokens, but for ``fields``."""
    usual: dict[str, Any] = {
        "id": "chatcmpl-1",
        "request_id": "r",
        "key": "alice",
        "route": "/v1/chat/completions",
        "model": "m",
        "stream": False,
        "state": "ended",
        "started_at": 1_700_000_000.0,
        "status": 200,
        "parameters": {},
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "cache_miss": None,
        "completion_tokens": 4,
        "finish_reasons": ["stop"],
        "ended_by": "model",
        "error": None,
        "error_code": None,
        "ttft_ms": 20.0,
        "duration_ms": 100.0,
        "times_ms": Times(queue=5.0, prefill=15.0, decode=60.0),
        "num_steps": 4,
        "mean_batch": 1.0,
        "max_batch": 1,
        "num_preemptions": 0,
    }
    return RequestRecord(**(usual | fields))
