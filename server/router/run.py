"""The router's process: one socket, one event loop, graceful shutdown."""

from __future__ import annotations

import os
import socket
import sys

from litestar import Litestar

from server.app import heap
from server.app.draining import DrainingServer, server_config
from server.app.edge import with_edge
from server.net.endpoint import open_endpoint
from server.net.head import Admit, admit_all
from server.net.listener import ListenError
from server.router.app import create_app
from server.router.config.config import ConfigError, read_config
from server.router.config.settings import RouteSettings, environ_of_models
from server.router.routing import Routing
from server.router.traffic import Traffic

DESCRIPTORS_EACH = 2
"""Of a request: the client's connection and the one to a server."""


def run(settings: RouteSettings) -> int:
    """Route until a signal and return the exit code. Main thread only."""
    server, environ = settings.server, environ_of_models(os.environ)
    try:
        config = read_config(settings.config, environ)
        endpoint = open_endpoint(server, descriptors_each=DESCRIPTORS_EACH)
    except (ConfigError, ListenError) as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    app = create_app(config, server, environ)
    uvicorn_config = server_config(with_edge(app), server)
    router = _Router(uvicorn_config, endpoint, server.drain_timeout, _Work(app))
    print(f"Listening on {endpoint.url}, routing to {', '.join(config.models)}", flush=True)
    try:
        router.run(sockets=[])
    finally:
        endpoint.close()
    return 0


class _Router(DrainingServer):
    """Ready from the start: models are loaded as they are needed."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        heap.freeze()  # else a full collection looks at all that was imported: streams stop
        self.announce_ready()


class _Work:
    """The open requests, once the application's lifespan has begun. Event loop only."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    @property
    def _traffic(self) -> Traffic:
        routing: Routing = self._app.state.routing
        return routing.traffic

    def admit(self) -> Admit:
        return admit_all

    def is_alive(self) -> bool:
        return True  # it is asked on the event loop

    async def drain(self, seconds: float) -> None:
        await self._traffic.drain(seconds)

    def cancel_all(self) -> None:
        self._traffic.cancel_all()
