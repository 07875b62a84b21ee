"""Statistics over the records of a run, and medians over runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Self

import msgspec

from bench.records import EngineRecord, RequestTimes
from core.contract.messages import EngineCounters


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which ``percent`` percent lie, interpolated; NaN without values.

    Its rank is ``(n - 1) * percent / 100`` in the sorted values, as in NumPy.
    """
    if not values:
        return math.nan
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of a quantity. Times are in milliseconds."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Return the distribution of these values; None if there are none."""
        known = sorted(values)
        if not known:
            return None
        return cls(
            count=len(known),
            mean=statistics.fmean(known),
            p50=percentile(known, 50),
            p95=percentile(known, 95),
            p99=percentile(known, 99),
            max=known[-1],
        )

    @classmethod
    def of_seconds(cls, seconds: Iterable[float | None]) -> Self | None:
        """Return the distribution, in milliseconds, of the times that are not None."""
        return cls.of(value * 1e3 for value in seconds if value is not None)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run as its client measured it.

    A request is ``completed``, ``rejected`` (429, 503) or ``failed``. Tokens, rates and times are
    those of completed requests. ``wall_s`` is the time from the first submission to the last end,
    ``submit_wall_s`` from the first submission to the last. ``short`` counts answers that ended
    before their token limit (a finish reason other than ``length``). ``cached_tokens`` is None if
    the server does not report them. ``estimated``: some request had no usage record, so its
    pieces were counted as tokens.
    """

    requests: int
    completed: int
    rejected: int
    failed: int
    short: int
    first_error: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    estimated: bool
    pieces: int
    wall_s: float
    submit_wall_s: float
    output_tok_s: float
    total_tok_s: float
    req_s: float
    submit_lag_ms: Spread | None
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    itl_ms: Spread | None
    latency_ms: Spread | None


def summarize(records: Sequence[RequestTimes]) -> Summary:
    """Summarize the records of one run."""
    done = [record for record in records if record.is_completed]
    num_rejected = sum(record.is_rejected for record in records)
    errors = [record.error for record in records if record.error is not None]
    cached = [record.cached_tokens for record in done if record.cached_tokens is not None]
    prompt_tokens = sum(record.prompt_tokens for record in done)
    completion_tokens = sum(record.completion_tokens for record in done)
    start = min((record.submit for record in records), default=0.0)
    wall = max((record.end for record in done), default=start) - start
    per_second = 1 / wall if wall > 0 else 0.0
    return Summary(
        requests=len(records),
        completed=len(done),
        rejected=num_rejected,
        failed=len(records) - len(done) - num_rejected,
        short=sum(record.finish_reason not in {"length", None} for record in done),
        first_error=errors[0] if errors else None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=sum(cached) if cached else None,
        estimated=any(record.estimated for record in done),
        pieces=sum(len(record.token_times) for record in done),
        wall_s=wall,
        submit_wall_s=max((record.submit for record in records), default=start) - start,
        output_tok_s=completion_tokens * per_second,
        total_tok_s=(prompt_tokens + completion_tokens) * per_second,
        req_s=len(done) * per_second,
        submit_lag_ms=Spread.of_seconds(record.lag for record in records if record.due > 0),
        ttft_ms=Spread.of_seconds(record.ttft for record in done),
        tpot_ms=Spread.of_seconds(record.tpot for record in done),
        itl_ms=Spread.of_seconds(gap for record in done for gap in record.gaps),
        latency_ms=Spread.of_seconds(record.latency for record in done),
    )


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Distributions of one run: the percentiles from 0 to 100, in milliseconds; empty if none."""

    ttft_ms: tuple[float, ...]
    itl_ms: tuple[float, ...]
    latency_ms: tuple[float, ...]


def curves_of(records: Sequence[RequestTimes]) -> Curves:
    """The distributions of the completed requests."""
    done = [record for record in records if record.is_completed]
    return Curves(
        ttft_ms=_percentiles(record.ttft for record in done),
        itl_ms=_percentiles(gap for record in done for gap in record.gaps),
        latency_ms=_percentiles(record.latency for record in done),
    )


def _percentiles(seconds: Iterable[float | None]) -> tuple[float, ...]:
    known = sorted(value * 1e3 for value in seconds if value is not None)
    return tuple(round(percentile(known, p), 3) for p in range(101)) if known else ()


class EngineSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run as an engine in this process measured it.

    ``prefill_ms`` is the time from a request's first step to its first token. Steps, tokens and
    preemptions are the engine's counters; ``tokens_per_step`` counts generated tokens.
    """

    tokenize_ms: Spread | None
    add_request_ms: Spread | None
    queue_wait_ms: Spread | None
    prefill_ms: Spread | None
    steps: int
    failed_steps: int
    preemptions: int
    tokens_per_step: float


def summarize_engine(
    records: Sequence[EngineRecord], before: EngineCounters, after: EngineCounters
) -> EngineSummary:
    """Summarize the records of one run and the counters before and after it."""
    done = [record for record in records if record.is_completed]
    steps = after.num_steps - before.num_steps
    tokens = after.num_output_tokens - before.num_output_tokens
    return EngineSummary(
        tokenize_ms=Spread.of_seconds(record.tokenize for record in done),
        add_request_ms=Spread.of_seconds(record.add for record in done),
        queue_wait_ms=Spread.of_seconds(record.queue_wait for record in done),
        prefill_ms=Spread.of_seconds(record.prefill for record in done),
        steps=steps,
        failed_steps=after.num_failed_steps - before.num_failed_steps,
        preemptions=after.num_preemptions - before.num_preemptions,
        tokens_per_step=tokens / steps if steps else 0.0,
    )


def median_of(runs: Sequence[Any]) -> Any:
    """Return a value of the type of ``runs`` in which every number is the median over the runs.

    In a Struct that holds for each field; None is ignored. A boolean is true if it is in any
    run; any other value is the first run's.
    """
    known = [run for run in runs if run is not None]
    if not known:
        return None
    first = known[0]
    match first:
        case bool():
            return any(known)
        case int():
            return statistics.median_low(known)
        case float():
            return statistics.median(known)
        case msgspec.Struct():
            names = first.__struct_fields__
            return type(first)(**{n: median_of([getattr(run, n) for run in known]) for n in names})
        case _:
            return first
