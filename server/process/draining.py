"""DrainingServer: uvicorn's server with a graceful shutdown and our own network.

uvicorn runs the lifespan's shutdown only after open responses have ended, so draining starts at
the signal: the server refuses new work while it still answers, waits for running responses, and
only then lets uvicorn exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, cast

import uvicorn
from litestar.datastructures import State
from litestar.types import ASGIApp

from server.net.endpoint import Endpoint
from server.settings.settings import Settings

logger = logging.getLogger("roseinfer.server")

TICK = 1.0
"""Seconds between two updates of the header ``date``."""

FAILURE_TIMEOUT = 1.0
"""Seconds in which responses may end with their error after the engine died."""

BEATS_PER_TIMEOUT = 3
"""Watchdog messages that are sent within the time after which the manager misses them."""


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
    Once the application's lifespan has begun, its ``state`` has ``is_alive`` and ``open_requests``,
    which can be asked to ``drain`` and to ``cancel_all``.
    """

    def __init__(
        self, config: uvicorn.Config, endpoint: Endpoint, drain_timeout: float, state: State
    ) -> None:
        super().__init__(config)
        self._state = state
        self._endpoint = endpoint
        self._drain_timeout = drain_timeout
        self._notifier = Notifier(os.environ)
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
        acceptor = self._endpoint.accept(self.config, self.server_state, self.lifespan.state)
        self.servers = [cast("asyncio.Server", acceptor)]
        self._notifier.watch(self._state.is_alive)
        if self._has_signal:
            self._begin_drain()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain, or exit at once on the second signal. Called as a signal handler."""
        if self._has_signal:
            self.should_exit = True
            if self._loop is not None and self.started:
                self._loop.call_soon_threadsafe(self._state.open_requests.cancel_all)
                self._loop.call_soon_threadsafe(self._exit.set)
        self._has_signal = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def announce_ready(self) -> None:
        """Tell the service manager that requests are accepted. Event loop only."""
        self._notifier.ready()

    def end_failed(self) -> None:
        """Refuse new work, let open responses end with their errors, exit. Event loop only."""
        if self._failing is None:
            self._failing = asyncio.get_running_loop().create_task(self._drain(FAILURE_TIMEOUT))

    def _begin_drain(self) -> None:
        if self._draining is None and self.started:
            drain = self._drain(self._drain_timeout)
            self._draining = asyncio.get_running_loop().create_task(drain)

    async def _drain(self, seconds: float) -> None:
        """Let responses end for so long, then exit."""
        self._notifier.stopping()
        await self._state.open_requests.drain(seconds)
        self.should_exit = True
        self._exit.set()


class Notifier:
    """Sends the server's state to a service manager. Event loop only.

    The protocol is that of sd_notify(3): datagrams of lines to the Unix socket that the environment
    names. Without ``NOTIFY_SOCKET`` nothing is sent and no timer runs. A message that cannot be
    sent is dropped; the first one is logged. No call blocks or raises.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """``NOTIFY_SOCKET`` is a path, or ``@`` and an abstract name.

        ``WATCHDOG_USEC`` is the time without a message after which the manager ends the process, or
        another one if ``WATCHDOG_PID`` says so.
        """
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_ours else ""
        seconds = int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0
        self._interval = seconds / BEATS_PER_TIMEOUT
        self._has_failed = False

    def ready(self) -> None:
        """The model is loaded and requests are accepted."""
        self._send("READY=1\nSTATUS=Serving.")

    def stopping(self) -> None:
        """New work is refused; the process exits when open responses have ended."""
        self._send("STOPPING=1\nSTATUS=Draining.")

    def watch(self, is_alive: Callable[[], bool]) -> None:
        """Send the watchdog's message as long as ``is_alive``. It is asked on the event loop.

        A loop that is blocked sends none either. The messages end with the loop.
        """
        if self._address and self._interval:
            self._beat(asyncio.get_running_loop(), is_alive)

    def _beat(self, loop: asyncio.AbstractEventLoop, is_alive: Callable[[], bool]) -> None:
        if is_alive():
            self._send("WATCHDOG=1")
        loop.call_later(self._interval, self._beat, loop, is_alive)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("the service manager does not take messages: %s", error)
            self._has_failed = True
