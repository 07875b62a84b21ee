"""The router's process: one socket, one event loop, graceful shutdown."""

from __future__ import annotations

import os
import socket
import sys

from server.app.edge import with_edge
from server.net.endpoint import ListenError, open_endpoint
from server.process import heap
from server.process.draining import DrainingServer, server_config
from server.router.app import create_app
from server.router.config.config import ConfigError, read_config
from server.router.config.settings import RouteSettings, environ_of_models

DESCRIPTORS_EACH = 2  # of a request: the client's connection and the one to a server


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
    router = _Router(uvicorn_config, endpoint, server.drain_timeout, app.state)
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
