"""The server process: one socket, one event loop, graceful shutdown."""

from __future__ import annotations

import sys
from collections.abc import Callable

from core.contract.info import EngineInfo
from core.thread import Died, Event, Ready
from server import heap
from server.app import create_app
from server.connections.errors import FrontError
from server.connections.front import Front
from server.connections.opening import open_front
from server.draining import DrainingServer, server_config
from server.edge import with_edge
from server.engine_work import EngineWork
from server.loaded import Loaded
from server.serving import Serving
from server.settings import Settings

SWITCH_INTERVAL = 0.0005
"""Seconds after which the core thread releases the GIL to the event loop."""


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve until a signal or a failure and return the exit code. Main thread only.

    ``load`` replaces the loader of ``settings.model``.
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
                _announce_ready(settings, front, app.state.serving)
            case Died(message, is_load_error):
                print(f"roseinfer: {_line(message)}", file=sys.stderr, flush=True)
                exit_code = 2 if is_load_error else 1
                server.end_failed()

    sys.setswitchinterval(SWITCH_INTERVAL)
    app = create_app(settings, load=load, on_event=on_event)
    config = server_config(with_edge(app, settings), settings)
    server = DrainingServer(config, front, settings.drain_timeout, EngineWork(app))
    print(f"Listening on {front.url}, loading {settings.model_name} ...", flush=True)
    try:
        server.run(sockets=[])
    finally:
        front.close()
    return exit_code


def _line(message: str) -> str:
    return " ".join(message.split())


def _announce_ready(settings: Settings, front: Front, serving: Serving) -> None:
    info = serving.model.info
    room = f", room for {info.num_kv_tokens} in the cache" if info.pooling is None else ""
    path, body = _example(info)
    print(
        f"Serving {settings.model_name}: {info.dtype} on {info.device}, "
        f"context {info.max_model_len} tokens{room}.\n"
        f"Try:  curl {front.curl}{path} -H 'Content-Type: application/json' -d '{body}'",
        flush=True,
    )


def _example(info: EngineInfo) -> tuple[str, str]:
    """A path and a body that the model answers."""
    if info.pooling is None:
        body = '{"messages": [{"role": "user", "content": "Hello!"}]}'
        return "/v1/chat/completions", body
    if info.pooling.task == "embed":
        return "/v1/embeddings", '{"input": "Hello!"}'
    return "/v1/rerank", '{"query": "Who?", "documents": ["I.", "You."]}'
