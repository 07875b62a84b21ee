"""DrainingServer from its start to its exit, with scripted work and real signals."""

import asyncio
import contextlib
import logging
import signal

import anyio
import anyio.lowlevel
import pytest
from litestar.datastructures import State

from server.net.endpoint import open_endpoint
from server.process import draining
from server.process.draining import DrainingServer, server_config
from server.settings.settings import Settings
from tests.support.engines import settle

pytestmark = pytest.mark.anyio

NEVER = 3600.0


class ScriptedWork:
    """One open request, which ends when the test says so, and not when it is cancelled."""

    def __init__(self):
        self.drains = []
        self.num_cancels = 0
        self.has_ended = anyio.Event()

    @property
    def state(self):
        return State({"open_requests": self, "is_alive": lambda: True})

    async def drain(self, seconds):
        self.drains.append(seconds)
        await self.has_ended.wait()

    def cancel_all(self):
        self.num_cancels += 1


async def application(_scope, receive, send):
    """A lifespan without anything in it."""
    for phase in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{phase}"
        await send({"type": f"lifespan.{phase}.complete"})


@pytest.fixture
async def work():
    return ScriptedWork()


@pytest.fixture
def serve(work, soon, monkeypatch):
    """Serve while the body runs; the body has to end it."""

    @contextlib.asynccontextmanager
    async def serve(*, tick=NEVER):
        monkeypatch.setattr(draining, "TICK", tick)
        settings = Settings(port=0)
        endpoint = open_endpoint(settings)
        server = DrainingServer(server_config(application, settings), endpoint, 7.0, work.state)
        serving = asyncio.create_task(server.serve(sockets=[]))
        try:
            with soon():
                while not server.server_state.default_headers:  # written by the first tick
                    await anyio.lowlevel.checkpoint()
                yield server
                await serving
        finally:
            endpoint.close()

    return serve


async def test_it_serves_until_the_work_has_ended_after_a_signal(serve, work):
    """Its loop sleeps for an hour at a time, so the end of the work has to wake it."""
    async with serve() as server:
        signal.raise_signal(signal.SIGTERM)
        await settle()
        assert work.drains == [7.0]
        assert not server.should_exit
        work.has_ended.set()
    assert server.should_exit
    assert work.num_cancels == 0


async def test_the_second_signal_ends_it_at_once(serve, work):
    async with serve():
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
    assert not work.has_ended.is_set()
    assert work.num_cancels == 1
    work.has_ended.set()  # for the task that drains
    await settle()


async def test_a_failed_engine_ends_it_after_its_last_answers(serve, work):
    async with serve() as server:
        for _ in range(2):
            server.end_failed()
        await settle()
        assert work.drains == [draining.FAILURE_TIMEOUT]
        work.has_ended.set()


async def test_a_signal_before_the_loop_runs_drains_from_the_start(work, monkeypatch, soon):
    monkeypatch.setattr(draining, "TICK", NEVER)
    settings = Settings(port=0)
    endpoint = open_endpoint(settings)
    server = DrainingServer(server_config(application, settings), endpoint, 7.0, work.state)
    server.handle_exit(signal.SIGTERM, None)
    work.has_ended.set()
    try:
        with soon():
            await server.serve(sockets=[])
    finally:
        endpoint.close()
    assert work.drains == [7.0]


async def test_every_tick_writes_the_date(serve, work):
    async with serve(tick=0.001) as server:
        for _ in range(3):
            server.server_state.default_headers = []
            while not server.server_state.default_headers:
                await anyio.lowlevel.checkpoint()
        assert server.server_state.default_headers[0][0] == b"date"
        work.has_ended.set()
        server.end_failed()


async def test_the_lifespan_is_shut_down_after_the_loop(serve, work, caplog):
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    async with serve():
        work.has_ended.set()
        signal.raise_signal(signal.SIGTERM)
    shut_down = caplog.messages.index("Application shutdown complete.")
    assert caplog.messages.index("Shutting down") < shut_down
