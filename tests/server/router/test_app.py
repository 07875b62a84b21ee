"""The router's application over ASGI: its limits, without any server behind it."""

import asyncio
import contextlib
import gc
import tracemalloc

import anyio
import pytest

from server.app.edge import with_edge
from server.router.app import create_app
from server.router.config.config import make_config
from server.router.order import SCOPE_KEY
from server.settings.settings import Settings
from server.settings.types import Rates
from tests.support.asgi import Exchange, ask
from tests.support.stalls import check_a_stall_is_counted

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
NOBODY = make_config({"models": {"a": {"url": "unix:/nonexistent"}}})


@pytest.fixture
async def start_app():
    async with contextlib.AsyncExitStack() as stack:

        async def start(config=NOBODY, **settings):
            chosen = Settings(**settings)
            app = create_app(config, chosen, {})
            await stack.enter_async_context(app.lifespan())
            wrapped = with_edge(app)
            wrapped.routing = app.state.routing
            return wrapped

        yield start


async def test_requests_are_counted_by_key_or_address(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    assert (await ask(app, "POST", CHAT, {"model": "a"})).status == 503
    reply = await ask(app, "POST", CHAT, {"model": "a"})
    assert (reply.status, reply.json["error"]["type"]) == (429, "requests")
    assert int(reply.headers["retry-after"]) >= 1


async def test_a_body_that_is_too_large_is_refused_however_it_comes(start_app):
    app = await start_app(max_body_size=1000)
    declared = {"content-type": "application/json", "content-length": "1001"}
    assert (await ask(app, "POST", CHAT, b"x", declared)).status == 413
    exchange = Exchange("POST", CHAT, chunks=[b"x" * 600] * 2)
    await exchange.run(app)
    assert exchange.status == 413
    assert app.routing.traffic.body_bytes.held == 0


async def test_a_page_of_an_allowed_origin_may_ask(start_app):
    page = "https://page.example"
    app = await start_app(allowed_origins=(page,))
    asked = {"origin": page, "access-control-request-method": "POST"}
    reply = await ask(app, "OPTIONS", CHAT, None, asked)
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == page


async def test_only_the_flag_limits_a_body(start_app):
    """Litestar's own limit is 10 MB."""
    app = await start_app(max_body_size=20_000_000)
    body = b'{"model": "a", "x": "%b"}' % (b"x" * 12_000_000)
    assert (await ask(app, "POST", CHAT, body)).status == 503  # its model has no server


async def test_a_question_for_the_methods_counts_as_no_request(start_app):
    app = await start_app(rate_limit=Rates(requests=1))
    for _ in range(3):
        reply = await ask(app, "OPTIONS", CHAT)
        assert (reply.status, "POST" in reply.headers["allow"]) == (204, True)
    assert (await ask(app, "POST", CHAT, {"model": "a"})).status == 503


async def test_bodies_that_are_held_have_a_limit_together(start_app):
    app = await start_app(max_body_size=1000)
    async with anyio.create_task_group() as tasks:
        held = [Exchange("POST", CHAT, chunks=[b"x" * 900]) for _ in range(4)]
        for exchange in held:
            exchange.hold_end()
            tasks.start_soon(exchange.run, app)
        with anyio.fail_after(10):
            while app.routing.traffic.body_bytes.held < 3600:
                await anyio.lowlevel.checkpoint()
        refused = await ask(app, "POST", CHAT, b"x" * 900)
        assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
        for exchange in held:
            exchange.disconnect()
    assert app.routing.traffic.body_bytes.held == 0
    assert app.routing.traffic.num_open == 0


async def test_a_router_that_drains_refuses_and_waits_for_what_is_open(start_app):
    app = await start_app()
    async with anyio.create_task_group() as tasks:
        exchange = Exchange("POST", CHAT, chunks=[b'{"model": "a"}'])
        exchange.hold_end()
        tasks.start_soon(exchange.run, app)
        while not app.routing.traffic.num_open:
            await anyio.lowlevel.checkpoint()
        tasks.start_soon(app.routing.traffic.drain, 10.0)
        await anyio.lowlevel.checkpoint()
        assert (await ask(app, "GET", "/health")).json == {"status": "draining"}
        assert (await ask(app, "POST", CHAT, {"model": "a"})).status == 503
        exchange.finish()
        assert (await exchange.done()).status == 503  # its model has no server
    assert app.routing.traffic.num_open == 0


async def test_what_does_not_end_in_time_is_cancelled(start_app):
    app = await start_app()
    async with anyio.create_task_group() as tasks:
        exchange = Exchange("POST", CHAT, chunks=[b"{"])
        exchange.hold_end()
        tasks.start_soon(exchange.run, app)
        while not app.routing.traffic.num_open:
            await anyio.lowlevel.checkpoint()
        await app.routing.traffic.drain(0.0)
    assert app.routing.traffic.num_open == 0
    assert exchange.is_done


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_client_that_leaves_ends_the_request_to_the_server_at_once(
    start_app, tmp_path, has_begun
):
    asked, left = anyio.Event(), anyio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"}")
        if has_begun:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        asked.set()
        assert await reader.read() == b""
        left.set()
        writer.close()

    path = str(tmp_path / "socket")
    server = await asyncio.start_unix_server(serve, path)
    app = await start_app(make_config({"models": {"a": {"url": f"unix:{path}"}}}))
    async with server, anyio.create_task_group() as tasks:
        exchange = Exchange("POST", CHAT, chunks=[b'{"model": "a"}'])
        tasks.start_soon(exchange.run, app)
        with anyio.fail_after(20):  # a silent server is given up only after ten minutes
            await asked.wait()
            if has_begun:
                await exchange.until(lambda exchange: exchange.body == b"x")
            exchange.disconnect()
            await left.wait()


async def test_a_block_of_the_event_loop_shows_in_stats(start_app):
    await check_a_stall_is_counted(await start_app())


# What is held of a body


@pytest.fixture
async def start_servers(tmp_path):
    """Start servers on Unix sockets; returns the file of a router in front of them."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(serve, number=1):
            paths = [tmp_path / f"socket{index}" for index in range(number)]
            for path in paths:
                server = await asyncio.start_unix_server(serve, path, limit=2**24)
                await stack.enter_async_context(server)
            return make_config({"models": {"a": {"url": [f"unix:{path}" for path in paths]}}})

        yield start


BODY = b'{"model": "a", "x": "%b"}' % (b"x" * 4_000_000)


async def test_a_body_is_held_until_its_server_has_it(start_app, start_servers, request):
    has_come, may_read, has_read = anyio.Event(), anyio.Event(), anyio.Event()

    async def serve(reader, writer):
        writer.transport.pause_reading()
        has_come.set()
        await may_read.wait()
        writer.transport.resume_reading()
        assert (await reader.readuntil(b"}")).endswith(BODY)
        has_read.set()
        await reader.read()
        writer.close()

    app = await start_app(await start_servers(serve))
    request.addfinalizer(tracemalloc.stop)
    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    held = app.routing.traffic.body_bytes
    async with anyio.create_task_group() as tasks:
        exchange = Exchange("POST", CHAT, chunks=[BODY])
        tasks.start_soon(exchange.run, app)
        with anyio.fail_after(20):
            await has_come.wait()
            assert held.held == len(BODY)
            may_read.set()
            await has_read.wait()
            while held.held:
                await anyio.lowlevel.checkpoint()
        assert not exchange.messages  # it waits for its answer
        assert exchange.scope["state"][SCOPE_KEY].data == b""
        now, _peak = tracemalloc.get_traced_memory()
        assert now - before < len(BODY) / 2, "somebody keeps the body"
        exchange.disconnect()
    assert held.held == 0


async def test_a_body_is_held_while_another_server_may_be_asked(start_app, start_servers):
    seen = []

    async def serve(reader, writer):
        seen.append(await reader.readuntil(b"}"))
        status = 503 if len(seen) == 1 else 200
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nok" % status)
        await writer.drain()
        writer.close()

    app = await start_app(await start_servers(serve, 2))
    reply = await ask(app, "POST", CHAT, BODY)
    assert (reply.status, reply.body) == (200, b"ok")
    assert [request.endswith(BODY) for request in seen] == [True, True]


async def test_a_body_that_no_server_can_get_is_not_kept(start_app, request, caplog):
    """Not even until the next collection of garbage."""
    caplog.set_level("ERROR", "roseinfer.route")  # pytest keeps records, with their exceptions
    urls = ["http://127.0.0.1:1", "unix:/nonexistent"]
    app = await start_app(make_config({"models": {"a": {"url": urls}}}))
    pieces = [BODY[:100], BODY[100:]]
    request.addfinalizer(gc.enable)
    gc.disable()
    request.addfinalizer(tracemalloc.stop)
    tracemalloc.start()
    for _ in range(2):
        exchange = Exchange("POST", CHAT, chunks=list(pieces))
        await exchange.run(app)
        assert exchange.status == 503
        assert exchange.json["error"]["code"] == "server_is_overloaded"
    now, _peak = tracemalloc.get_traced_memory()
    assert now < len(BODY) / 2, "somebody keeps the body"


async def test_requests_that_arrive_together_begin_a_few_at_a_time(start_app):
    app = await start_app()
    begun = []

    async def begin(tenant):
        begun.append(tenant)

    app.routing.traffic.pacing.begin = begin
    await ask(app, "POST", CHAT, {"model": "a"})
    await ask(app, "GET", "/health")
    assert begun == ["127.0.0.1"]
