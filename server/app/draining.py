"""DrainingServer: uvicorn's server with a graceful shutdown and our own network.

uvicorn runs the lifespan's shutdown only after open responses have ended, so draining starts at
the signal: the server refuses new work while it still answers, waits for running responses, and
only then lets uvicorn exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from types import FrameType
from typing import Any, Protocol, cast

import uvicorn
from litestar.types import ASGIApp

from server.app.notify import Notifier
from server.net.endpoint import Endpoint
from server.net.head import Admit
from server.settings.settings import Settings

TICK = 1.0
"""Seconds between two updates of the header ``date``."""

FAILURE_TIMEOUT = 1.0
"""Seconds in which responses may end with their error after the engine died."""


class OpenRequests(Protocol):
    """The requests of an application, once its lifespan has begun. Event loop only."""

    def admit(self) -> Admit:
        """What decides about requests from their heads."""

    def is_alive(self) -> bool:
        """Whether the process works, as ``/livez`` says."""

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait for open ones; after so many seconds end them."""

    def cancel_all(self) -> None:
        """End every open request."""


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration for an application."""
    return uvicorn.Config(
        cast("Any", app),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=settings.forwarded_allow_ips is not None,
        forwarded_allow_ips=settings.forwarded_allow_ips,
        timeout_graceful_shutdown=1,
    )


class DrainingServer(uvicorn.Server):
    """Drains on the first signal and exits at once on the second. Accepts through ``endpoint``.

    A service manager is told when a drain begins, and that the process works, as ``/livez`` says.
    """

    def __init__(
        self, config: uvicorn.Config, endpoint: Endpoint, drain_timeout: float, work: OpenRequests
    ) -> None:
        super().__init__(config)
        self._work = work
        self._endpoint = endpoint
        self._drain_timeout = drain_timeout
        self._notifier = Notifier.from_environ(os.environ)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._failing: asyncio.Task[None] | None = None
        self._has_signal = False
        self._exit = asyncio.Event()

    async def main_loop(self) -> None:
        """Serve until it is time to exit.

        uvicorn's own loop wakes ten times a second, which a router with one stream would notice.
        """
        while not await self.on_tick(0):  # tick 0 updates the date
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._exit.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and handle a signal that came before the event loop ran."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # of no sockets: it only starts the lifespan
        acceptor = self._endpoint.accept(
            self.config, self.server_state, self.lifespan.state, self._work.admit()
        )
        self.servers = [cast("asyncio.Server", acceptor)]
        self._notifier.watch(self._work.is_alive)
        if self._has_signal:
            self._begin_drain()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain, or exit at once on the second signal. Called as a signal handler."""
        if self._has_signal:
            self._exit_now()
        self._has_signal = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _exit_now(self) -> None:
        """Cancel open responses and exit. Called as a signal handler."""
        self.should_exit = True
        if self._loop is not None and self.started:
            self._loop.call_soon_threadsafe(self._work.cancel_all)
            self._loop.call_soon_threadsafe(self._exit.set)

    def announce_ready(self) -> None:
        """Tell the service manager that requests are accepted. Event loop only."""
        self._notifier.ready()

    def end_failed(self) -> None:
        """Let every open response end with its error, then exit. Event loop only.

        New work gets 503 meanwhile.
        """
        if self._failing is None:
            self._failing = asyncio.get_running_loop().create_task(self._drain(FAILURE_TIMEOUT))

    def _begin_drain(self) -> None:
        if self._draining is None and self.started:
            drain = self._drain(self._drain_timeout)
            self._draining = asyncio.get_running_loop().create_task(drain)

    async def _drain(self, seconds: float) -> None:
        """Let responses end for so long, then exit."""
        self._notifier.stopping()
        await self._work.drain(seconds)
        self.should_exit = True
        self._exit.set()
