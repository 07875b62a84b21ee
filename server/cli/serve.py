"""The server process: one socket, one event loop, graceful shutdown."""

from __future__ import annotations

import sys
from collections.abc import Callable

from core.thread import Died, Event, Ready
from server.app import heap
from server.app.app import create_app
from server.app.draining import DrainingServer, server_config
from server.app.edge import with_edge
from server.cli.start_up import StartUp
from server.generation.model import Loaded
from server.net.endpoint import ListenError, open_endpoint
from server.settings.settings import Settings


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve until a signal or a failure and return the exit code. Main thread only.

    ``set_up_server`` has prepared the process. ``load`` replaces the loader of ``settings.model``.
    """
    try:
        endpoint = open_endpoint(settings)
    except ListenError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    exit_code = 0

    def on_event(event: Event) -> None:
        nonlocal exit_code
        match event:
            case Ready():
                heap.freeze()
                server.announce_ready()
                start_up.ready(endpoint, app.state.serving.model)
            case Died(message, is_load_error):
                start_up.end()
                print(f"roseinfer: {' '.join(message.split())}", file=sys.stderr, flush=True)
                exit_code = 2 if is_load_error else 1
                server.end_failed()

    start_up = StartUp(settings, load)
    app = create_app(settings, load=start_up.load, on_event=on_event)
    config = server_config(with_edge(app), settings)
    server = DrainingServer(config, endpoint, settings.drain_timeout, app.state)
    start_up.begin(endpoint)
    try:
        server.run(sockets=[])
    finally:
        start_up.end()
        endpoint.close()
    return exit_code
