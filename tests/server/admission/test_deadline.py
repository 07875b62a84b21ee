import asyncio

import anyio
import msgspec
import pytest

from server.admission.deadline import seconds_given
from server.http.errors import APIError
from server.settings.types import Rates
from tests.support.asgi import Exchange, ask
from tests.support.engines import out, settle, until

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
JSON = {"content-type": "application/json"}
SECONDS = 2.5
SOON = {"x-request-timeout": f"{SECONDS}"}


def chat(*, headers=SOON, is_complete=True, **fields):
    body = msgspec.json.encode({"messages": USER} | fields)
    return Exchange("POST", CHAT, chunks=[body], headers=JSON | headers, is_complete=is_complete)


def given(value, server_seconds=0.0):
    return seconds_given([(b"x-request-timeout", value)], server_seconds)


class TestHeader:
    def test_absent(self):
        assert seconds_given([], 0.0) is None
        assert seconds_given([], 3.0) == 3.0

    def test_the_shorter_time_counts(self):
        assert given(b"2.5") == 2.5
        assert given(b"2.5", 1.0) == 1.0
        assert given(b"2.5", 9.0) == 2.5

    def test_what_is_no_time_is_refused(self):
        for value in (b"", b"soon", b"0", b"-1", b"nan", b"inf", b"1e9", b"\xff"):
            with pytest.raises(APIError) as caught:
                given(value)
            assert (caught.value.status, caught.value.error.param) == (400, "X-Request-Timeout")


class Timers:
    """Stands in for the event loop's timers of SECONDS: the test says when the time is over."""

    def __init__(self, call_later):
        self.callbacks = []
        self._call_later = call_later

    def __call__(self, seconds, callback, *args, **options):
        if seconds != SECONDS:
            return self._call_later(seconds, callback, *args, **options)
        self.callbacks.append(callback)
        return anyio.CancelScope()  # has a method ``cancel``, as a timer has

    def expire(self):
        [callback] = self.callbacks
        callback()


class TestExpiry:
    @pytest.fixture
    async def timers(self, monkeypatch):
        loop = asyncio.get_running_loop()
        timers = Timers(loop.call_later)
        monkeypatch.setattr(loop, "call_later", timers)
        return timers

    @pytest.fixture
    async def app(self, start_app, engine):
        return await start_app(engine)

    @staticmethod
    def is_free(app):
        admission = app.litestar.state.serving.admission
        return not (admission.num_tickets or admission.choices.held or app.bridge._routes)

    @pytest.mark.parametrize("stream", [False, True])
    async def test_in_the_queue_it_is_a_504(self, app, engine, timers, stream):
        exchange = chat(stream=stream, n=2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(2)
            timers.expire()
            await exchange.done()
        assert exchange.status == 504
        assert exchange.json["error"]["code"] == "request_timeout"
        assert "2.5 s" in exchange.json["error"]["message"]
        assert exchange.headers["x-should-retry"] == "false"
        assert self.is_free(app)
        engine.step_with()
        await engine.until(lambda e: not e.live)

    async def test_a_stream_that_has_begun_ends_with_an_error_event(self, app, engine, timers):
        exchange = chat(stream=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(1)
            await engine.say(out(engine.added[0].request_id, "half"))
            timers.expire()
            await exchange.done()
        assert exchange.status == 200
        assert b'"content":"half"' in exchange.body
        assert b"time of 2.5 s is over" in exchange.writes[-1]
        assert b'"finish_reason":"stop"' not in exchange.body
        assert exchange.has_ended
        assert exchange.failure is None
        assert self.is_free(app)

    async def test_during_the_upload_it_is_a_408(self, app, timers):
        exchange = chat(is_complete=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await until(lambda: timers.callbacks and not exchange._incoming)
            timers.expire()
            await exchange.done()
        assert exchange.status == 408
        assert exchange.headers["connection"] == "close"
        assert self.is_free(app)

    async def test_in_front_of_a_worker_it_is_a_504_that_may_be_retried(self, app, engine, timers):
        lane = app.litestar.state.serving.pools.small
        lane.num_running += lane._limit  # all are busy
        exchange = chat()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await until(lambda: lane.num_waiting)
            timers.expire()
            await exchange.done()
        lane.num_running -= lane._limit
        assert exchange.status == 504
        assert 1 <= int(exchange.headers["retry-after"]) <= 60
        assert exchange.headers["x-should-retry"] == "true"
        assert engine.added == []
        await until(lambda: self.is_free(app))

    async def test_the_operators_limit(self, start_app, engine):
        app = await start_app(engine, request_timeout=0.02)
        exchange = chat(headers={})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await exchange.done()
        assert exchange.status == 504

    async def test_an_answer_in_time_is_whole(self, start_app):
        app = await start_app()
        exchange = chat(headers={"x-request-timeout": "60"})
        await exchange.run(app)
        assert exchange.status == 200
        await settle()

    async def test_a_wrong_header_is_refused_before_the_body_is_read(self, app):
        exchange = chat(headers={"x-request-timeout": "soon"})
        await exchange.run(app)
        assert exchange.status == 400
        assert len(exchange._incoming) == 1


async def test_rate_limit_headers_are_on_every_answer(start_app):
    app = await start_app(rate_limit=Rates(requests=2, tokens=100))
    exchange = await ask(app, "POST", CHAT, {"messages": USER})
    assert exchange.headers["x-ratelimit-remaining-requests"] == "1"
    left = int(exchange.headers["x-ratelimit-remaining-tokens"])
    assert left < 100  # the prompt is charged, the answer is not yet
    exchange = await ask(app, "POST", CHAT, {"messages": []})
    assert exchange.status == 400
    assert exchange.headers["x-ratelimit-remaining-requests"] == "0"
    assert int(exchange.headers["x-ratelimit-remaining-tokens"]) < left
    refused = await ask(app, "POST", CHAT, {"messages": USER})
    assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert (await ask(app, "GET", "/health")).status == 200
