"""Replica: a whole server, application and engine, as a replica of Ray Serve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from core.engine.thread import Died, Event
from server.apis.operation.health import liveness
from server.cli.program import set_up_server
from server.process import heap
from server.ray.plan import settings_of

if TYPE_CHECKING:
    from server.generation.model import Loaded
    from server.settings.settings import Settings


class ReplicaFailed(Exception):
    """The engine has not been loaded, has failed, or makes no progress."""


class Replica:
    """The class of the deployment. On the event loop of Serve's user code only.

    Serve sends it the ASGI messages of its proxies. Nothing of the server below knows of Serve.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        """``argv`` are flags of ``roseinfer serve``."""
        self._settings = settings_of(list(argv))
        set_up_server(self._settings)
        self._loaded = asyncio.Event()
        self._failure = ""
        self._app: Any = None

    def load(self, settings: Settings) -> Loaded:
        """Load the engine. Runs on the core thread."""
        from core.assembly.load import load  # noqa: PLC0415 - imports torch, after set_up_server

        return load(settings.model, settings.engine)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The application. Its lifespan, which Serve runs, begins to load the engine."""
        from server.app.app import create_app  # noqa: PLC0415 - imports torch, after set_up_server
        from server.app.edge import with_edge  # noqa: PLC0415 - the same

        self._app = create_app(
            self._settings, load=lambda: self.load(self._settings), on_event=self._on_event
        )
        return below_prefix(with_edge(self._app))

    async def check_health(self) -> None:
        """Raise ReplicaFailed if Serve should replace this replica.

        The first call is part of the start: it waits for the engine, so no request comes before.
        """
        await self._loaded.wait()
        health = liveness(self._app.state.serving.bridge)
        if health.status != "ok":
            raise ReplicaFailed(self._failure or health.reason)

    def record_routing_stats(self) -> dict[str, int]:
        """Load figures for Serve's request router."""
        stats = self._app.state.serving.bridge.stats
        return {
            "num_running": stats.num_running,
            "num_waiting": stats.num_waiting,
            "num_free_blocks": stats.num_free_blocks,
        }

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Died):
            self._failure = event.message
        else:
            heap.freeze()
        self._loaded.set()


def below_prefix(app: ASGIApp) -> ASGIApp:
    """Wrap ``app``, which knows nothing of the prefix of its application's routes."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        prefix = scope.get("root_path", "")
        if scope["type"] == ScopeType.HTTP and prefix:
            path = scope["path"].removeprefix(prefix) or "/"
            raw_path = scope["raw_path"].decode("latin-1").removeprefix(prefix) or "/"
            below: Any = {"root_path": "", "path": path, "raw_path": raw_path.encode("latin-1")}
            scope = scope | below
        await app(scope, receive, send)

    return wrapped
