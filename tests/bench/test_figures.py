import math

import pytest

from bench.figures import Spread, median_of, percentile, summarize, summarize_engine
from bench.records import EngineRecord, RequestTimes
from core.contract.messages import EngineCounters


def record(submit=0.0, times=(0.5, 0.6, 0.8), **fields):
    return RequestTimes(
        **{
            "due": submit,
            "submit": submit,
            "token_times": [submit + t for t in times],
            "end": submit + 1.0,
            "prompt_tokens": 10,
            "completion_tokens": len(times),
            "status": 200,
            "finish_reason": "length",
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (50, 2.5), (100, 4), (25, 1.75), (99, 3.97)]
)
def test_percentile_interpolates(percent, value):
    assert percentile([4, 2, 1, 3], percent) == pytest.approx(value)
    assert percentile([7], percent) == 7


def test_percentile_of_no_values_is_nan():
    assert math.isnan(percentile([], 50))
    assert Spread.of([]) is None


def test_spread_of_values():
    assert Spread.of_seconds([0.001, None, 0.003]) == Spread(
        count=2, mean=2.0, p50=2.0, p95=2.9, p99=2.98, max=3.0
    )


def test_a_record_computes_its_durations():
    r = record(1.0, due=0.75)
    assert r.lag == 0.25
    assert r.ttft == 0.5
    assert r.tpot == pytest.approx(0.15)
    assert r.gaps == pytest.approx([0.1, 0.2])
    assert r.latency == 1.0
    assert (r.first, r.last) == (1.5, 1.8)


def test_a_record_without_tokens_has_no_durations():
    r = record(times=())
    assert (r.ttft, r.tpot, r.gaps, r.first, r.last) == (None, None, [], None, None)
    assert record(times=(0.5,)).tpot is None


def test_time_per_token_counts_tokens_that_share_a_piece():
    assert record(completion_tokens=5).tpot == pytest.approx(0.3 / 4)


def test_summary_of_a_run():
    records = [
        record(1.0, cached_tokens=4),
        record(2.0, finish_reason="stop", estimated=True),
        record(2.5, times=(), error="HTTP 429: no", status=429, prompt_tokens=0),
        record(2.75, error="lost"),
    ]
    s = summarize(records)
    assert (s.requests, s.completed, s.rejected, s.failed, s.short) == (4, 2, 1, 1, 1)
    assert s.first_error == "HTTP 429: no"
    assert (s.prompt_tokens, s.completion_tokens, s.cached_tokens, s.pieces) == (20, 6, 4, 6)
    assert s.estimated
    assert (s.wall_s, s.submit_wall_s) == (2.0, 1.75)
    assert (s.output_tok_s, s.total_tok_s, s.req_s) == (3.0, 13.0, 1.0)
    assert s.ttft_ms.count == 2
    assert s.itl_ms.count == 4
    assert s.submit_lag_ms.count == 4
    assert s.latency_ms.mean == pytest.approx(1000)


def test_summary_of_failed_requests_only():
    s = summarize([record(error="lost")])
    assert (s.completed, s.failed, s.wall_s, s.req_s) == (0, 1, 0.0, 0.0)
    assert s.ttft_ms is None
    assert s.cached_tokens is None


def test_summary_of_no_requests():
    assert summarize([]).requests == 0


def test_summary_of_the_engine():
    r = EngineRecord(submit=1.0, tokenize=0.1, ready=1.25, add=0.001, scheduled=1.5, end=3.0)
    r.token_times = [2.0, 2.5]
    s = summarize_engine(
        [r],
        EngineCounters(num_steps=5, num_output_tokens=5),
        EngineCounters(num_steps=9, num_output_tokens=13, num_preemptions=1),
    )
    assert s.queue_wait_ms.max == 250
    assert s.prefill_ms.max == 500
    assert s.tokenize_ms.max == 100
    assert (s.steps, s.preemptions, s.failed_steps, s.tokens_per_step) == (4, 1, 0, 2.0)


def test_a_request_that_was_never_scheduled_has_no_queue_wait():
    assert (EngineRecord().queue_wait, EngineRecord().prefill) == (None, None)


def test_medians_over_runs():
    runs = [
        summarize([record(times=(0.5, 0.5 + gap)), record(times=(0.5, 0.5 + gap))])
        for gap in (0.1, 0.4, 0.2)
    ]
    runs.append(summarize([record(times=(0.5,), estimated=True)] * 2))
    m = median_of(runs)
    assert m.requests == 2
    assert m.itl_ms.max == pytest.approx(200)  # a run without gaps is ignored
    assert m.estimated
    assert median_of([None, None]) is None
    assert median_of(["a", "b"]) == "a"
