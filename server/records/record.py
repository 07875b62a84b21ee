"""record_of: the record of a request, from its trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from core.contract.messages import Work
from schemas.records import CacheMiss, RequestRecord, Times
from server.errors import to_api_error
from server.records.engine_times import EngineTimes, engine_times
from server.records.trace import Trace

EndedBy: TypeAlias = Literal["model", "length", "stop", "client", "deadline", "server", "error"]

CLIENT_LEFT = 499
_BY_STATUS: dict[int, EndedBy] = {
    CLIENT_LEFT: "client",
    408: "deadline",
    504: "deadline",
    503: "server",
}
"""Who ends a request with an error of this status; of another, the error."""


@dataclass(frozen=True, slots=True)
class _End:
    status: int | None
    ended_by: EndedBy | None
    error: str | None = None
    code: str | None = None


def record_of(trace: Trace, model: str, *, now: float, has_ended: bool) -> RequestRecord:
    """The record as of ``now``."""
    works = [] if trace.stream is None else trace.stream.works()
    known = [work for work in works if work is not None]
    engine = None
    if trace.submitted_at is not None:
        engine = engine_times(works, trace.submitted_at, now)
    num_tokens = _num_output_tokens(trace, known)
    end = _end_of(trace, num_tokens) if has_ended else _End(trace.status, None)
    num_steps = sum(work.num_steps for work in known)
    miss = next((work.miss for work in known if work.miss is not None), None)
    return RequestRecord(
        id=trace.id,
        request_id=trace.request_id,
        key=trace.key,
        route=trace.path,
        model=model,
        stream=trace.is_streamed,
        state="ended" if has_ended else "running",
        started_at=round(trace.started_at, 3),
        status=end.status,
        parameters=dict(trace.parameters),
        prompt_tokens=trace.num_prompt_tokens,
        cached_tokens=_num_cached_tokens(works, trace.choices_per_prompt),
        cache_miss=None
        if miss is None
        else CacheMiss(reason=miss.reason, first_differing_block=miss.block),
        completion_tokens=num_tokens,
        finish_reasons=[] if trace.stream is None else trace.stream.finish_reasons(),
        ended_by=end.ended_by,
        error=end.error,
        error_code=end.code,
        ttft_ms=_ttft(trace, engine),
        duration_ms=_ms(now - trace.start),
        times_ms=_times(trace, engine, now),
        num_steps=max((work.num_steps for work in known), default=0),
        mean_batch=round(sum(work.num_rows for work in known) / num_steps, 2) if num_steps else 0.0,
        max_batch=max((work.max_rows for work in known), default=0),
        num_preemptions=sum(work.num_preemptions for work in known),
        traceparent=trace.traceparent,
        prompt=None if trace.texts is None else trace.texts.prompt,
        text=None if trace.texts is None else trace.texts.text,
    )


def _times(trace: Trace, engine: EngineTimes | None, now: float) -> Times:
    seconds = trace.times(now)
    delivery = seconds.get("delivery", 0.0)
    queue = prefill = decode = 0.0
    if engine is not None:
        queue, prefill, decode = engine.queue, engine.prefill, engine.decode
        delivery = now - engine.until
    parts = [
        seconds.get("upload", 0.0),
        seconds.get("waiting", 0.0),
        seconds.get("worker", 0.0),
        queue,
        prefill,
        decode,
        delivery,
    ]
    other = max(now - trace.start - sum(parts), 0.0)
    upload, waiting, worker, queue, prefill, decode, delivery, other = map(_ms, [*parts, other])
    return Times(
        upload=upload,
        waiting=waiting,
        worker=worker,
        queue=queue,
        prefill=prefill,
        decode=decode,
        delivery=delivery,
        other=other,
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


def _num_output_tokens(trace: Trace, known: list[Work]) -> int:
    reported = 0 if trace.stream is None else trace.stream.num_output_tokens
    return max(reported, sum(work.num_output_tokens for work in known))


def _num_cached_tokens(works: list[Work | None], choices_per_prompt: int) -> int:
    """A prompt counts once, with its first choice."""
    first = works[:: max(choices_per_prompt, 1)]
    return sum(work.num_cached_tokens for work in first if work is not None)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
