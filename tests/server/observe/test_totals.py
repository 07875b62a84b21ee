"""What is counted of each record."""

from __future__ import annotations

import pytest

from schemas.records import Times
from server.observe.log import RequestTotals
from tests.support.records import ended


@pytest.fixture
def totals():
    return RequestTotals()


def test_a_finished_request_counts_everywhere(totals):
    totals(
        ended(
            ttft_ms=250.0,
            duration_ms=1500.0,
            times_ms=Times(queue=100.0, prefill=150.0, decode=1000.0),
            prompt_tokens=12,
            completion_tokens=30,
            finish_reasons=["stop", "length"],
        )
    )
    assert totals.ended == {("/v1/chat/completions", "200", "model"): 1}
    assert totals.finished == {"stop": 1, "length": 1}
    read = {
        name: getattr(totals, name).read().total
        for name in (
            *("first_token", "duration", "queue", "prefill", "decode"),
            *("prompt_tokens", "generated_tokens"),
        )
    }
    assert read == {
        "first_token": 0.25,
        "duration": 1.5,
        "queue": 0.1,
        "prefill": 0.15,
        "decode": 1.0,
        "prompt_tokens": 12,
        "generated_tokens": 30,
    }


@pytest.mark.parametrize("ended_by", ["client", "deadline", "server", "error"])
def test_what_did_not_finish_has_no_duration_but_its_queue_and_first_token(totals, ended_by):
    totals(ended(ended_by=ended_by, status=499, finish_reasons=[None]))
    assert totals.ended == {("/v1/chat/completions", "499", ended_by): 1}
    assert totals.finished == {"stop": 0, "length": 0}
    assert totals.duration.read().num_values == 0
    assert totals.queue.read().num_values == 1
    assert totals.first_token.read().num_values == 1


def test_what_never_reached_the_engine_counts_by_its_status_only(totals):
    totals(ended(status=429, ended_by="error", ttft_ms=None, num_steps=0, finish_reasons=[]))
    assert totals.ended == {("/v1/chat/completions", "429", "error"): 1}
    assert totals.queue.read().num_values == totals.first_token.read().num_values == 0
