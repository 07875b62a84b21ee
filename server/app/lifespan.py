"""The parts of the application's lifespan: the engine, and spans of requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from anyio import move_on_after, to_thread
from litestar import Litestar

from core.assembly.load import load as load_model
from core.engine.thread import Event, SteppingEngine
from server.admission.control import decide_by_budgets
from server.apis.operation.health import liveness
from server.bridge.bridge import EngineBridge
from server.generation.model import Loaded, ServedModel
from server.generation.serving import Serving
from server.settings.settings import Settings

FLUSH_SECONDS = 3.0
"""Time that the last spans get at the end of the server."""


@asynccontextmanager
async def engine_lifespan(
    settings: Settings,
    load: Callable[[], Loaded] | None,
    on_event: Callable[[Event], None],
    app: Litestar,
) -> AsyncIterator[None]:
    """Start and stop the core thread with the application.

    Start-up does not wait for the model. Until it is loaded, routes answer 503. ``load`` replaces
    the loader of ``settings.model`` and runs on the core thread.
    """

    def load_on_core_thread() -> SteppingEngine:
        loaded: Loaded = load() if load else load_model(settings.model, settings.engine)
        serving.loaded_model = ServedModel.of(settings, loaded)
        return loaded.engine

    bridge = EngineBridge(
        load_on_core_thread, max_num_seqs=settings.engine.max_num_seqs, on_event=on_event
    )
    serving = Serving.of(settings, bridge)
    app.state.decide = decide_by_budgets(
        settings, app.state.api_keys, serving.admission, bridge.check_accepting
    )
    app.state.serving, app.state.stalls = serving, serving.stalls
    app.state.open_requests = bridge
    app.state.is_alive = lambda: liveness(bridge).status == "ok"
    bridge.start()
    try:
        yield
    finally:
        serving.pools.close()
        bridge.close()


@asynccontextmanager
async def tracing_lifespan(settings: Settings, app: Litestar) -> AsyncIterator[None]:
    """Make spans of requests if ``--otlp-traces-endpoint`` is set. Begins after the engine's."""
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
