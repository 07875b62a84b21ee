"""The server process: one socket, one event loop, graceful shutdown.

uvicorn runs the lifespan's shutdown only after open responses have ended, so draining starts at
the signal: the server refuses new work while it still answers, waits for running responses, and
only then lets uvicorn exit.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from litestar import Litestar

from core.build import LoadedEngine
from core.thread import Died, Event, Ready
from server import heap
from server.app import create_app
from server.edge import with_edge
from server.serving import Serving
from server.settings import Settings

SWITCH_INTERVAL = 0.0005
"""Seconds after which the core thread releases the GIL to the event loop."""

KEEP_ALIVE_TIMEOUT = 60
"""Seconds before an idle connection is closed."""


class DrainingServer(uvicorn.Server):
    """Drains on the first signal and exits at once on the second."""

    def __init__(self, config: uvicorn.Config, app: Litestar, drain_timeout: float) -> None:
        super().__init__(config)
        self._app = app
        self._drain_timeout = drain_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._has_signal = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and handle a signal that came before the event loop ran."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._has_signal:
            self._begin_drain()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain, or exit at once on the second signal. Called as a signal handler."""
        if self._has_signal:
            self.exit_now()
        self._has_signal = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def exit_now(self) -> None:
        """Cancel open responses and exit."""
        self.should_exit = True
        if self._loop is not None and self.started:
            self._loop.call_soon_threadsafe(self._serving.bridge.cancel_all)

    @property
    def _serving(self) -> Serving:
        serving: Serving = self._app.state.serving
        return serving

    def _begin_drain(self) -> None:
        if self._draining is None and self.started:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        await self._serving.bridge.drain(self._drain_timeout)
        self.should_exit = True


def run(settings: Settings, load: Callable[[], LoadedEngine] | None = None) -> int:
    """Serve until a signal or a failure and return the exit code. Main thread only.

    ``load`` replaces the loader of ``settings.model``.
    """
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        print(
            f"roseinfer: cannot listen on {settings.host}:{settings.port}: {error}", file=sys.stderr
        )
        return 2
    exit_code = 0

    def on_event(event: Event) -> None:
        nonlocal exit_code
        match event:
            case Ready():
                heap.freeze()
                _announce_ready(settings, url, app.state.serving)
            case Died(message, is_load_error):
                print(f"roseinfer: {message}", file=sys.stderr, flush=True)
                if is_load_error:
                    exit_code = 2
                    server.should_exit = True

    sys.setswitchinterval(SWITCH_INTERVAL)
    app = create_app(settings, load=load, on_event=on_event)
    config = uvicorn.Config(
        with_edge(app, settings),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=settings.forwarded_allow_ips is not None,
        forwarded_allow_ips=settings.forwarded_allow_ips,
        timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
        timeout_graceful_shutdown=1,
    )
    server = DrainingServer(config, app, settings.drain_timeout)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"Listening on {url}, loading {settings.served_model_name} ...", flush=True)
    server.run(sockets=[listener])
    return exit_code


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def _announce_ready(settings: Settings, url: str, serving: Serving) -> None:
    info = serving.model.info
    print(
        f"Serving {settings.served_model_name}: {info.dtype} on {info.device}, "
        f"context {info.max_model_len} tokens, room for {info.num_kv_tokens} in the cache.\n"
        f"Try:  curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        '-d \'{"messages": [{"role": "user", "content": "Hello!"}]}\'',
        flush=True,
    )
