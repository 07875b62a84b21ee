"""record_of: the record of a request, from its trace. Made for every request, so it is lean.

engine_times: where the time of a request in the engine went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.contract.messages import Work
from schemas.records import CacheMiss, EndedBy, RequestRecord, Times
from server.http.errors import to_api_error
from server.observe.trace import Trace


class EngineTimes(NamedTuple):
    """Seconds. ``first_token_at`` and ``until`` are times of the engine's clock."""

    queue: float
    prefill: float
    decode: float
    first_token_at: float | None
    until: float


def engine_times(works: Sequence[Work | None], submitted_at: float, now: float) -> EngineTimes:
    """The times of a request whose choices did these works; None of one that has done nothing.

    The request waits until its first choice starts, and prefills until its first token. Of one
    choice, waits after preemptions count as waits too.
    """
    start, first_at, until, is_known = now, None, submitted_at, False
    for work in works:
        if work is None:
            continue
        is_known = True
        until = max(until, work.until)
        if work.started_at is not None:
            start = min(start, work.started_at)
        if work.first_token_at is not None:
            first_at = (
                work.first_token_at if first_at is None else min(first_at, work.first_token_at)
            )
    if not is_known:
        return EngineTimes(now - submitted_at, 0.0, 0.0, None, now)
    until = min(until, now)
    start = max(min(start, until), submitted_at)
    first = max(until if first_at is None else first_at, start)
    waited = waited_before = 0.0
    if len(works) == 1 and works[0] is not None:
        waited, waited_before = works[0].waited, works[0].waited_before_first
    return EngineTimes(
        start - submitted_at + waited,
        max(first - start - waited_before, 0.0),
        max(until - first - (waited - waited_before), 0.0),
        first_at,
        until,
    )


CLIENT_LEFT = 499
_BY_STATUS: dict[int, EndedBy] = {
    CLIENT_LEFT: "client",
    408: "deadline",
    504: "deadline",
    503: "server",
}
"""Who ends a request with an error of this status; of another, the error."""


class _End(NamedTuple):
    status: int | None
    ended_by: EndedBy | None
    error: str | None = None
    code: str | None = None


def record_of(trace: Trace, model: str, *, now: float, has_ended: bool) -> RequestRecord:
    """The record as of ``now``."""
    stream, engine = trace.stream, None
    works: Sequence[Work | None] = () if stream is None else stream.works()
    if trace.submitted_at is not None:
        engine = engine_times(works, trace.submitted_at, now)
    totals = _totals(works, trace.choices_per_prompt)
    num_tokens = totals.num_output_tokens
    if stream is not None:
        num_tokens = max(num_tokens, stream.num_output_tokens)
    end = _end_of(trace, num_tokens) if has_ended else _End(trace.status, None)
    texts, mean = trace.texts, totals.num_rows / (totals.num_all_steps or 1)
    return RequestRecord(
        id=trace.id,
        request_id=trace.request_id,
        key=trace.key,
        route=trace.path,
        model=model,
        stream=trace.is_streamed,
        state="ended" if has_ended else "running",
        started_at=trace.started_at,
        status=end.status,
        parameters=trace.parameters,
        ignored=trace.ignored,
        prompt_tokens=trace.num_prompt_tokens,
        cached_tokens=totals.num_cached_tokens,
        cache_miss=totals.miss,
        completion_tokens=num_tokens,
        finish_reasons=[] if stream is None else stream.finish_reasons(),
        ended_by=end.ended_by,
        error=end.error,
        error_code=end.code,
        ttft_ms=_ttft(trace, engine),
        duration_ms=_ms(now - trace.start),
        times_ms=_times(trace, engine, now),
        num_steps=totals.num_steps,
        mean_batch=int(mean * 100 + 0.5) / 100,
        max_batch=totals.max_rows,
        num_preemptions=totals.num_preemptions,
        traceparent=trace.traceparent,
        prompt=None if texts is None else texts.prompt,
        text=None if texts is None else texts.text,
    )


class _Totals(NamedTuple):
    """What all choices did. A prompt's cached tokens count once, with its first choice."""

    num_steps: int = 0
    """The most steps of a choice."""
    num_all_steps: int = 0
    num_rows: int = 0
    max_rows: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    miss: CacheMiss | None = None


_NOTHING = _Totals()


def _totals(works: Sequence[Work | None], choices_per_prompt: int) -> _Totals:
    if not works:
        return _NOTHING
    num_steps = num_all_steps = num_rows = max_rows = 0
    num_preemptions = num_cached_tokens = num_output_tokens = 0
    miss = None
    for index, work in enumerate(works):
        if work is None:
            continue
        num_steps = max(num_steps, work.num_steps)
        num_all_steps += work.num_steps
        num_rows += work.num_rows
        max_rows = max(max_rows, work.max_rows)
        num_preemptions += work.num_preemptions
        num_output_tokens += work.num_output_tokens
        if index % choices_per_prompt == 0:
            num_cached_tokens += work.num_cached_tokens
        miss = miss or work.miss
    return _Totals(
        num_steps,
        num_all_steps,
        num_rows,
        max_rows,
        num_preemptions,
        num_cached_tokens,
        num_output_tokens,
        None if miss is None else CacheMiss(reason=miss.reason, first_differing_block=miss.block),
    )


def _times(trace: Trace, engine: EngineTimes | None, now: float) -> Times:
    seconds = trace.times(now)
    upload, waiting = seconds.get("upload", 0.0), seconds.get("waiting", 0.0)
    worker, delivery = seconds.get("worker", 0.0), seconds.get("delivery", 0.0)
    queue = prefill = decode = 0.0
    if engine is not None:
        queue, prefill, decode, _, until = engine
        delivery = now - until
    known = upload + waiting + worker + queue + prefill + decode + delivery
    return Times(
        upload=_ms(upload),
        waiting=_ms(waiting),
        worker=_ms(worker),
        queue=_ms(queue),
        prefill=_ms(prefill),
        decode=_ms(decode),
        delivery=_ms(delivery),
        other=_ms(max(now - trace.start - known, 0.0)),
    )


def _end_of(trace: Trace, num_tokens: int) -> _End:
    stream, error = trace.stream, trace.error
    if error is None and stream is not None and stream.failed_with is not None:
        error = to_api_error(stream.failed_with)
    if error is not None:
        return _End(
            error.status,
            _BY_STATUS.get(error.status, "error"),
            _after(error.error.message, trace, num_tokens),
            "client_left" if error.status == CLIENT_LEFT else error.error.code or error.error.type,
        )
    if not trace.is_complete:
        if trace.has_left:
            message = f"client left after {num_tokens} tokens"
            return _End(CLIENT_LEFT, "client", message, "client_left")
        message = f"the server ended it after {num_tokens} tokens"
        return _End(503, "server", message, "server_ended")
    return _End(trace.status, None if stream is None else _ended_by(stream.ending()))


def _ended_by(ending: tuple[str | None, str | int | None]) -> EndedBy:
    finish_reason, stop_reason = ending
    if finish_reason == "length":
        return "length"
    return "model" if stop_reason is None else "stop"


def _after(message: str, trace: Trace, num_tokens: int) -> str:
    """The message of an error; of a stream that had begun, with what it had sent."""
    if trace.status is not None and trace.is_streamed and num_tokens:
        return f"{message} (after {num_tokens} tokens)"
    return message


def _ttft(trace: Trace, engine: EngineTimes | None) -> float | None:
    """Until the first piece of a stream was sent, else until the engine had the first token."""
    first = None if trace.stream is None else trace.stream.first_sent_at
    if first is None and engine is not None:
        first = engine.first_token_at
    return None if first is None else _ms(first - trace.start)


def _ms(seconds: float) -> float:
    """Milliseconds with three digits; ``round`` takes ten times as long."""
    return int(seconds * 1e6 + 0.5) / 1e3
