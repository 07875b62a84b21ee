"""Lines of the access log: one line each, the whole truth, and no client's text."""

import logging

import msgspec
import pytest

from core.contract.errors import GenerationFailed, QueueFull
from server.http.errors import to_api_error
from server.observe.access_log import AccessLine, logger
from tests.support.engines import last, out
from tests.support.records import WORK, record_at, stream_of, submit, trace_with

pytestmark = pytest.mark.anyio

HEAD = "POST /v1/chat/completions {} 5500.0 ms k rid "
TIMES = "queue=1000.0 prefill=1000.0 decode=3000.0 delivery=500.0 steps=4 batch=2.5/3 preempted=0"


def line_of(trace, stream=None):
    if stream is not None:
        submit(trace, stream, at=100.0)
        stream.close()
    trace.clock.now = 105.5
    return AccessLine(trace, record_at(trace, 105.5))


async def test_an_answer():
    trace = trace_with(id="chatcmpl-1", is_streamed=True, num_prompt_tokens=20)
    line = line_of(trace, stream_of(last("0", work=WORK)))
    assert str(line) == (
        HEAD.format(200) + "ended_by=model id=chatcmpl-1 stream prompt=20 cached=16 "
        f"miss=evicted@1 completion=4 ttft=2000.0 {TIMES}"
    )


async def test_a_client_that_left():
    trace = trace_with(is_complete=False, has_left=True)
    line = line_of(trace, stream_of(WORK))
    assert str(line).startswith(HEAD.format(499) + "client left after 4 tokens miss=evicted@1 ")


async def test_a_stream_that_failed():
    trace = trace_with(is_streamed=True)
    stream = stream_of(out("0", error="secret text", work=WORK))
    stream.failed_with = GenerationFailed("secret text")
    line = line_of(trace, stream)
    assert str(line).startswith(HEAD.format(500) + "failed after 4 tokens server_error stream ")
    assert "secret" not in str(line)
    assert "secret" not in str(line.fields())


async def test_a_refusal():
    error = to_api_error(QueueFull("full", retry_after=1))
    line = line_of(trace_with(status=429, error=error))
    assert str(line).startswith(HEAD.format(429) + "refused rate_limit_exceeded waiting=5500.0")


async def test_fields_are_the_record():
    trace = trace_with(id="chatcmpl-1")
    line = line_of(trace, stream_of(last("0", work=WORK)))
    fields = line.fields()
    assert fields["times_ms"]["decode"] == 3000
    assert fields["cache_miss"] == {"reason": "evicted", "first_differing_block": 1}
    assert fields["method"] == "POST"
    assert not fields.keys() & {"prompt", "text", "error"}
    msgspec.json.encode(fields)


def test_a_request_that_is_not_recorded():
    trace = trace_with(status=404, path="/x\nGET /fake 200")
    trace.clock.now += 0.0015
    line = AccessLine(trace, None)
    assert str(line) == "POST /x%0AGET%20/fake%20200 404 1.5 ms k rid"
    assert line.fields() == {
        "method": "POST",
        "route": "/x\nGET /fake 200",
        "status": 404,
        "duration_ms": 1.5,
        "key": "k",
        "request_id": "rid",
    }
    assert " 499 " in str(AccessLine(trace_with(status=None), None))


def test_a_line_is_made_only_if_it_is_written(caplog):
    trace = trace_with()
    with caplog.at_level(logging.WARNING, logger="roseinfer.access"):
        logger.info(AccessLine(trace, None))
        assert not caplog.records
    with caplog.at_level(logging.INFO, logger="roseinfer.access"):
        logger.info(AccessLine(trace, None))
    assert caplog.messages == ["POST /v1/chat/completions 200 0.0 ms k rid"]
