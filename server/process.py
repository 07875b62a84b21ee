"""The server process: one socket, one event loop, graceful shutdown."""

from __future__ import annotations

import sys
from collections.abc import Callable

from core.thread import Died, Event, Ready
from server import heap
from server.app import create_app
from server.connections.errors import FrontError
from server.connections.opening import open_front
from server.draining import DrainingServer, server_config
from server.edge import with_edge
from server.engine_work import EngineWork
from server.loaded import Loaded
from server.settings import Settings
from server.start_up.start_up import StartUp


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve until a signal or a failure and return the exit code. Main thread only.

    ``set_up_server`` has prepared the process. ``load`` replaces the loader of ``settings.model``.
    """
    try:
        front = open_front(settings)
    except FrontError as error:
        print(f"roseinfer: {error}", file=sys.stderr)
        return 2
    exit_code = 0

    def on_event(event: Event) -> None:
        nonlocal exit_code
        match event:
            case Ready():
                heap.freeze()
                server.announce_ready()
                start_up.ready(front, app.state.serving.model)
            case Died(message, is_load_error):
                start_up.end()
                print(f"roseinfer: {_line(message)}", file=sys.stderr, flush=True)
                exit_code = 2 if is_load_error else 1
                server.end_failed()

    start_up = StartUp(settings, load)
    app = create_app(settings, load=start_up.load, on_event=on_event)
    config = server_config(with_edge(app, settings), settings)
    server = DrainingServer(config, front, settings.drain_timeout, EngineWork(app))
    start_up.begin(front)
    try:
        server.run(sockets=[])
    finally:
        start_up.end()
        front.close()
    return exit_code


def _line(message: str) -> str:
    return " ".join(message.split())
