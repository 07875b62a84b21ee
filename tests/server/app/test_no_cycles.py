"""A request is freed when it ends: many of them leave nothing to the collector."""

import asyncio
import contextlib
import gc
import weakref
from collections import Counter

import anyio
import msgspec
import pytest

from core.contract.errors import DeadlineExceeded
from server.admission.admission import Ticket
from server.bridge.stream import ResponseStream
from server.generation.answer import StreamAnswer, WholeAnswer
from server.http.errors import APIError
from server.net.body_writer import EXTENSION, BodyWriter
from server.observe.access_log import with_trace
from server.observe.stalls import StallWatch
from server.settings.types import Rates
from tests.support.asgi import Exchange
from tests.support.engines import GatedEngine, out, settle

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]

KINDS = {APIError, DeadlineExceeded, ResponseStream, StreamAnswer, Ticket, WholeAnswer}


class Ending(Exchange):
    """A client that has left after the last byte, as uvicorn says of every one."""

    async def send(self, message):
        await super().send(message)
        if self.has_ended:
            self.disconnect()


@contextlib.contextmanager
def without_collections():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def frees_all():
    """Check that what is made of a request is freed without a collection."""
    with without_collections():
        before = alive()
        yield
        assert alive() <= before


def alive():
    """How many objects of requests there are.

    ``isinstance`` would ask the objects for their class, which dead proxies answer with an error.
    """
    return Counter(type(found) for found in gc.get_objects() if type(found) in KINDS)


def test_dead_proxies_are_passed_over():
    proxy = weakref.proxy(Cycle({}))
    assert type(proxy) in map(type, gc.get_objects())
    error = APIError(400, "")
    assert alive()[type(error)]


async def test_the_error_of_a_refused_request_is_freed(start_app):
    app = await start_app()
    with frees_all():
        assert await status_of(app, messages=5) == 400


async def test_the_error_of_a_rate_is_freed(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    assert await status_of(app) == 200
    with frees_all():
        assert await status_of(app) == 429


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_is_freed(start_app, is_streamed):
    app = await start_app()
    with frees_all():
        assert await status_of(app, is_streamed=is_streamed) == 200


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_whose_time_is_over_is_freed(start_app, is_streamed):
    app = await start_app(GatedEngine())
    with frees_all():
        assert await status_of(app, is_streamed=is_streamed, seconds="0.01") == 504


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_whose_client_leaves_is_freed(start_app, is_streamed):
    engine = GatedEngine()
    app = await start_app(engine)
    with frees_all():
        await leave(app, engine, is_streamed=is_streamed)


async def leave(app, engine, *, is_streamed):
    """Leave in the middle of an answer, to which outputs are written directly."""
    exchange = asking(is_streamed=is_streamed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        (request,) = engine.added
        for text in ("Once", " upon", " a"):
            await engine.say(out(request.request_id, text, num_output_tokens=1))
        assert len(exchange.messages) == (4 if is_streamed else 0)
        exchange.disconnect()
        await exchange.done()
    assert exchange.failure is None
    assert not exchange.has_ended
    engine.step_with()
    await engine.until(lambda engine: engine.aborted)
    await settle()


async def status_of(app, *, messages=MESSAGES, is_streamed=False, seconds="100"):
    """Ask for an answer, and read it."""
    exchange = asking(messages=messages, is_streamed=is_streamed, seconds=seconds)
    await exchange.run(app)
    assert exchange.failure is None
    assert exchange.has_ended
    await settle()
    return exchange.status


def asking(*, messages=MESSAGES, is_streamed=False, seconds="100"):
    """A client that asks for an answer, to which outputs may be written directly."""
    body = {"messages": messages, "stream": is_streamed}
    headers = {"content-type": "application/json", "x-request-timeout": seconds}
    chunks = [msgspec.json.encode(body)]
    exchange = Ending("POST", "/v1/chat/completions", chunks=chunks, headers=headers)
    exchange.give_writer()
    return exchange


class Cycle:
    """What refers to a scope, as uvicorn's cycle does."""

    def __init__(self, scope):
        self.scope = scope
        scope["extensions"] = {EXTENSION: BodyWriter(self)}


async def test_the_cycle_of_a_request_is_freed():
    async def app(scope, receive, send):
        pass

    async def serve():
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        cycle = Cycle(scope)
        await with_trace(app, lambda: StallWatch(asyncio.get_running_loop()))(scope, None, None)
        return weakref.ref(cycle)

    with without_collections():
        assert (await serve())() is None
