"""The engine's life inside the application: load, serve, stop, join.

The life of traces inside the application.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from anyio import move_on_after, to_thread
from litestar import Litestar

from core.load import load as load_model
from core.thread import Event, SteppingEngine
from server.bridge.bridge import EngineBridge
from server.bridge.choices import further_choices
from server.generation.model import Loaded, ServedModel
from server.generation.serving import Serving
from server.settings.settings import Settings


def engine_lifespan(
    settings: Settings,
    load: Callable[[], Loaded] | None,
    on_event: Callable[[Event], None],
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Start and stop the core thread with the application.

    Start-up does not wait for the model. Until it is loaded, routes answer 503. ``load`` replaces
    the loader of ``settings.model`` and runs on the core thread.
    """

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        def load_on_core_thread() -> SteppingEngine:
            loaded: Loaded = load() if load else load_model(settings.model, settings.engine)
            serving.loaded_model = ServedModel.of(settings, loaded)
            return loaded.engine

        bridge = EngineBridge(
            load_on_core_thread,
            max_further_choices=further_choices(settings.engine.max_num_seqs),
            on_event=on_event,
        )
        serving = Serving.of(settings, bridge)
        app.state.serving, app.state.stalls = serving, serving.stalls
        bridge.start()
        try:
            yield
        finally:
            serving.pools.close()
            bridge.close()

    return lifespan


FLUSH_SECONDS = 3.0
"""Time that the last spans get at the end of the server."""


def tracing_lifespan(
    settings: Settings,
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Make spans of requests if ``--otlp-traces-endpoint`` is set. Begins after the engine's."""

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        if settings.otlp_traces_endpoint is None:
            yield
            return
        # the packages are optional, and a server without traces does not import them
        from server.observe.tracing import RequestSpans, new_provider  # noqa: PLC0415

        serving: Serving = app.state.serving
        provider = new_provider(settings.otlp_traces_endpoint)
        serving.records.listen(RequestSpans(provider))
        try:
            yield
        finally:
            with move_on_after(FLUSH_SECONDS, shield=True):
                await to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)

    return lifespan
