"""Trace: what is known of one request while it is served. record_of: its record, made of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from core.contract.messages import StepOutput, Work
from schemas.records import CacheMiss, EndedBy, RequestRecord, Times
from server.bridge.stream import ResponseStream
from server.http.errors import APIError, to_api_error

if TYPE_CHECKING:  # `roseinfer route` has the same front, and no tokenizer
    from core.text.tokenizer import Tokenizer

SCOPE_KEY = "trace"  # key in the ``state`` of an ASGI scope

Phase: TypeAlias = Literal["waiting", "upload", "worker", "engine", "delivery"]


@dataclass(slots=True, kw_only=True, eq=False)
class Trace:
    """Marks and facts of one request, from its head to the last byte. Event loop only.

    A request is in one phase at a time. What it did in the phase ``engine`` is known to the engine.
    """

    method: str = ""
    path: str = ""
    key: str = ""
    request_id: str = ""
    traceparent: str | None = None  # the client's span that this is a part of, in W3C's form
    clock: Callable[[], float] = time.perf_counter  # the engine's clock
    started_at: float = field(default_factory=time.time)  # unix seconds of ``start``
    seconds: dict[str, float] = field(default_factory=dict)  # seconds of the phases that have ended
    recorder: Callable[[Trace], RequestRecord] | None = None  # makes a record at the end, if any
    status: int | None = None
    is_complete: bool = False  # whether the last byte was sent
    has_left: bool = False  # whether the client has left before that
    error: APIError | None = None  # what was answered in place of the answer
    id: str | None = None
    ignored: list[str] = field(default_factory=list)  # parts of the request without effect
    is_streamed: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    choices_per_prompt: int = 1
    stream: ResponseStream | None = None
    submitted_at: float | None = None  # when the engine got it, in seconds of the clock
    texts: Texts | None = None
    start: float = field(init=False)
    _since: float = field(init=False)
    _phase: Phase = field(init=False, default="waiting")

    def __post_init__(self) -> None:
        self.start = self._since = self.clock()

    def enter(self, phase: Phase) -> None:
        now = self.clock()
        self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def submitted(self, stream: ResponseStream) -> None:
        """The engine has it. No other phase follows."""
        self.enter("engine")
        self.stream, self.submitted_at = stream, self._since

    def responds(self, status: int) -> None:
        self.status = status
        if self.stream is None:
            self.enter("delivery")

    def end(self) -> RequestRecord | None:
        """The last byte was sent, or the client has left. Returns its record if it has one."""
        return None if self.recorder is None else self.recorder(self)

    def times(self, now: float) -> dict[str, float]:
        """Seconds of all phases until now."""
        since = self.seconds.get(self._phase, 0.0) + now - self._since
        return {**self.seconds, self._phase: since}


def trace_of(scope: Any) -> Trace:
    """The trace of an HTTP scope; a new one if none was set."""
    trace: Trace | None = scope.setdefault("state", {}).get(SCOPE_KEY)
    return Trace() if trace is None else trace


BETWEEN = "\n\n"  # between the texts of several prompts or choices


class Texts:
    """Prompt and answer of one request, for an operator who wants them kept."""

    def __init__(self) -> None:
        self.prompt = ""  # the prompts as the model saw them
        self._choices: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        """The generated text of all choices, in order. Thinking comes before the answer."""
        return BETWEEN.join("".join(self._choices[index]) for index in sorted(self._choices))

    def take_prompts(self, prompts: Sequence[Sequence[int]], tokenizer: Tokenizer) -> None:
        """Decode the prompts. It takes long; worker threads only."""
        texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in prompts]
        self.prompt = BETWEEN.join(texts)

    def take(self, index: int, output: StepOutput) -> None:
        self._choices.setdefault(index, []).append(output.thinking + output.text)


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
    done = [work for work in works if work is not None]
    if not done:
        return EngineTimes(now - submitted_at, 0.0, 0.0, None, now)
    until = min(max(submitted_at, *(work.until for work in done)), now)
    start = min([until, *(work.started_at for work in done if work.started_at is not None)])
    start = max(start, submitted_at)
    first_tokens = [work.first_token_at for work in done if work.first_token_at is not None]
    first_at = min(first_tokens, default=None)
    first = max(until if first_at is None else first_at, start)
    waited = waited_before = 0.0
    if len(works) == 1:
        waited, waited_before = done[0].waited, done[0].waited_before_first
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


_NO_WORK = Work(until=0.0)


def _sum_of(works: Sequence[Work | None], choices_per_prompt: int) -> tuple[Work, float]:
    """The work of all choices, with the most steps of one, and the mean of their batches.

    A prompt's cached tokens count once, with its first choice.
    """
    done = [work for work in works if work is not None]
    if not done:
        return _NO_WORK, 0.0
    if len(works) == 1:
        return done[0], done[0].num_rows / (done[0].num_steps or 1)
    firsts = works[::choices_per_prompt]
    num_rows = sum(work.num_rows for work in done)
    total = Work(
        until=0.0,
        num_steps=max(work.num_steps for work in done),
        num_rows=num_rows,
        max_rows=max(work.max_rows for work in done),
        num_preemptions=sum(work.num_preemptions for work in done),
        num_cached_tokens=sum(work.num_cached_tokens for work in firsts if work is not None),
        num_output_tokens=sum(work.num_output_tokens for work in done),
        miss=next((work.miss for work in done if work.miss is not None), None),
    )
    return total, num_rows / (sum(work.num_steps for work in done) or 1)


def record_of(trace: Trace, model: str, *, now: float, has_ended: bool) -> RequestRecord:
    """The record of a request so far. It is made for every request, so it is lean."""
    stream, texts, engine = trace.stream, trace.texts, None
    ends = [] if stream is None else stream.ends()
    works = [end.work for end in ends]
    if trace.submitted_at is not None:
        engine = engine_times(works, trace.submitted_at, now)
    total, mean = _sum_of(works, trace.choices_per_prompt)
    num_tokens, miss = total.num_output_tokens, total.miss
    if stream is not None:
        num_tokens = max(num_tokens, stream.num_output_tokens)
    end = _end_of(trace, num_tokens) if has_ended else _End(trace.status, None)
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
        cached_tokens=total.num_cached_tokens,
        cache_miss=(
            None
            if miss is None
            else CacheMiss(reason=miss.reason, first_differing_block=miss.block)
        ),
        completion_tokens=num_tokens,
        finish_reasons=[end.finish_reason for end in ends],
        ended_by=end.ended_by,
        error=end.error,
        error_code=end.code,
        ttft_ms=_ttft(trace, engine),
        duration_ms=_ms(now - trace.start),
        times_ms=_times(trace, engine, now),
        num_steps=total.num_steps,
        mean_batch=int(mean * 100 + 0.5) / 100,
        max_batch=total.max_rows,
        num_preemptions=total.num_preemptions,
        traceparent=trace.traceparent,
        prompt=None if texts is None else texts.prompt,
        text=None if texts is None else texts.text,
    )


def _times(trace: Trace, engine: EngineTimes | None, now: float) -> Times:
    seconds = trace.times(now)
    seconds.pop("engine", None)
    if engine is not None:
        seconds |= {"queue": engine.queue, "prefill": engine.prefill, "decode": engine.decode}
        seconds["delivery"] = now - engine.until
    seconds["other"] = max(now - trace.start - sum(seconds.values()), 0.0)
    return Times(**{name: _ms(value) for name, value in seconds.items()})


def _end_of(trace: Trace, num_tokens: int) -> _End:
    stream, error = trace.stream, trace.error
    if error is None and stream is not None and stream.failed_with is not None:
        error = to_api_error(stream.failed_with)
    if error is not None:
        message = error.error.message
        if trace.status is not None and trace.is_streamed and num_tokens:
            message += f" (after {num_tokens} tokens)"  # which were sent
        code = error.error.code or error.error.type
        if error.status == CLIENT_LEFT:
            code = "client_left"
        return _End(error.status, _BY_STATUS.get(error.status, "error"), message, code)
    if not trace.is_complete:
        if trace.has_left:
            message = f"client left after {num_tokens} tokens"
            return _End(CLIENT_LEFT, "client", message, "client_left")
        message = f"the server ended it after {num_tokens} tokens"
        return _End(503, "server", message, "server_ended")
    if stream is None:
        return _End(trace.status, None)
    first = stream.ends()[0]
    if first.finish_reason == "length":
        return _End(trace.status, "length")
    return _End(trace.status, "model" if first.stop_reason is None else "stop")


def _ttft(trace: Trace, engine: EngineTimes | None) -> float | None:
    """Until the first piece of a stream was sent, else until the engine had the first token."""
    first = None if trace.stream is None else trace.stream.first_sent_at
    if first is None and engine is not None:
        first = engine.first_token_at
    return None if first is None else _ms(first - trace.start)


def _ms(seconds: float) -> float:
    """Milliseconds with three digits; ``round`` takes ten times as long."""
    return int(seconds * 1e6 + 0.5) / 1e3
