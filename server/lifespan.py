"""The engine's life inside the application: load, serve, stop, join."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from core.load import load as load_model
from core.thread import Event, SteppingEngine
from server.admission.choices import further_choices
from server.bridge import EngineBridge
from server.loaded import Loaded
from server.served_model import ServedModel
from server.serving import Serving
from server.settings import Settings


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
