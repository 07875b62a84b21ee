"""Records: who ended a request, what it cost, and where its time went."""

import msgspec
import pytest

from core.contract.errors import DeadlineExceeded, GenerationFailed, QueueFull, Unavailable
from server.http.errors import APIError, to_api_error
from tests.support.engines import last, out
from tests.support.records import WORK, attributed, record_at, stream_of, submit, trace_with

pytestmark = pytest.mark.anyio

PREEMPTED = msgspec.structs.replace(WORK, num_preemptions=1)


@pytest.fixture
def closing():
    streams = []
    yield lambda stream: (streams.append(stream), stream)[1]
    for stream in streams:
        stream.close()


async def test_a_whole_life(closing):
    trace = trace_with(id="chatcmpl-1", is_streamed=True, num_prompt_tokens=20)
    trace.parameters = {"temperature": 0.5}
    submit(trace, closing(stream_of(last("0", num_output_tokens=4, work=PREEMPTED))), at=100.5)
    trace.stream.first_sent_at = 102.25
    record = record_at(trace, 105.5)
    assert (record.id, record.request_id, record.key) == ("chatcmpl-1", "rid", "k")
    assert (record.route, record.model, record.stream) == ("/v1/chat/completions", "model", True)
    assert (record.state, record.status, record.ended_by) == ("ended", 200, "model")
    assert record.parameters == {"temperature": 0.5}
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (20, 16, 4)
    assert (record.cache_miss.reason, record.cache_miss.first_differing_block) == ("evicted", 1)
    assert record.finish_reasons == ["stop"]
    assert record.error is record.error_code is None
    assert (record.num_steps, record.mean_batch, record.max_batch) == (4, 2.5, 3)
    assert record.num_preemptions == 1
    assert (record.ttft_ms, record.duration_ms) == (2250, 5500)
    times = record.times_ms
    assert (times.queue, times.prefill, times.decode, times.delivery) == (500, 1000, 3000, 500)
    assert (record.prompt, record.text) == (None, None)


async def test_a_running_request_is_told_of_as_far_as_it_is(closing):
    trace = trace_with(status=None, is_complete=False)
    record = record_at(trace, 101.0, has_ended=False)
    assert (record.state, record.status, record.ended_by) == ("running", None, None)
    assert record.times_ms.waiting == 1000
    submit(trace, closing(stream_of(WORK)), at=100.5)
    record = record_at(trace, 105.0, has_ended=False)
    assert (record.completion_tokens, record.finish_reasons) == (4, [None])
    assert record.times_ms.decode == 3000
    assert record.times_ms.delivery == 0
    assert record.ttft_ms == 2000, "as the engine has it"


@pytest.mark.parametrize(
    ("finish", "stop", "ended_by"),
    [
        ("stop", None, "model"),
        ("stop", "END", "stop"),
        ("stop", 7, "stop"),
        ("length", None, "length"),
    ],
)
async def test_who_ended_an_answer(closing, finish, stop, ended_by):
    trace = trace_with()
    end = out("0", finish_reason=finish, stop_reason=stop, work=WORK)
    submit(trace, closing(stream_of(end)), at=100.0)
    assert record_at(trace, 106.0).ended_by == ended_by


@pytest.mark.parametrize(
    ("error", "status", "ended_by", "code"),
    [
        (QueueFull("full", retry_after=1), 429, "error", "rate_limit_exceeded"),
        (DeadlineExceeded("over"), 504, "deadline", "request_timeout"),
        (APIError(408, "late"), 408, "deadline", "invalid_request_error"),
        (APIError(499, "gone"), 499, "client", "client_left"),
        (Unavailable("draining"), 503, "server", "server_is_overloaded"),
        (GenerationFailed("no"), 500, "error", "server_error"),
    ],
)
async def test_who_ended_a_request_with_an_error(error, status, ended_by, code):
    found = to_api_error(error)
    record = record_at(trace_with(status=status, error=found), 100.25)
    assert (record.status, record.ended_by, record.error_code) == (status, ended_by, code)
    assert record.error == str(error)


@pytest.mark.parametrize(
    ("error", "status", "ended_by"),
    [
        (DeadlineExceeded("over"), 504, "deadline"),
        (Unavailable("draining"), 503, "server"),
        (GenerationFailed("no"), 500, "error"),
    ],
)
async def test_a_stream_that_fails_in_the_middle_did_not_end_with_200(
    closing, error, status, ended_by
):
    trace = trace_with(status=200, is_streamed=True)
    submit(trace, closing(stream_of(out("0", error="no", work=WORK))), at=100.0)
    trace.stream.failed_with = error
    record = record_at(trace, 106.0)
    assert (record.status, record.ended_by) == (status, ended_by)
    assert record.error == f"{error} (after 4 tokens)"


async def test_a_client_that_leaves_did_not_get_200(closing):
    trace = trace_with(status=200, is_complete=False, has_left=True, is_streamed=True)
    submit(trace, closing(stream_of(WORK)), at=100.0)
    record = record_at(trace, 106.0)
    assert (record.status, record.ended_by) == (499, "client")
    assert record.error == "client left after 4 tokens"
    assert record.finish_reasons == [None]


async def test_an_answer_that_the_server_cuts_did_not_end_with_200(closing):
    trace = trace_with(status=200, is_complete=False)
    submit(trace, closing(stream_of(WORK)), at=100.0)
    record = record_at(trace, 106.0)
    assert (record.status, record.ended_by) == (503, "server")


async def test_a_client_that_leaves_after_the_last_byte_has_its_answer(closing):
    trace = trace_with(has_left=True)
    submit(trace, closing(stream_of(last("0", work=WORK))), at=100.0)
    assert record_at(trace, 106.0).status == 200


async def test_choices_are_summed_and_prompts_count_once(closing):
    trace = trace_with(choices_per_prompt=2, num_prompt_tokens=40)
    lasts = [last(str(i), work=PREEMPTED) for i in range(4)]
    submit(trace, closing(stream_of(*lasts)), at=100.0)
    record = record_at(trace, 106.0)
    assert record.cached_tokens == 32
    assert record.completion_tokens == 16
    assert record.finish_reasons == ["stop"] * 4
    assert (record.num_steps, record.mean_batch, record.max_batch) == (4, 2.5, 3)
    assert record.num_preemptions == 4


async def test_what_was_not_submitted_has_no_engine_in_it():
    record = record_at(trace_with(status=200), 101.0)
    assert (record.ended_by, record.finish_reasons, record.ttft_ms) == (None, [], None)
    assert (record.num_steps, record.mean_batch, record.max_batch) == (0, 0.0, 0)
    assert attributed(record.times_ms) == record.duration_ms == 1000
