"""create_app: routes, exception handlers and lifespan in one application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from anyio import move_on_after, to_thread
from litestar import Litestar

from core.load import load as load_model
from core.thread import Event, SteppingEngine
from server.admission.control import decide_by_budgets
from server.apis.operation.health import liveness
from server.apis.responses.store import ResponseStore
from server.app.access import keys_lifespan, keys_of
from server.app.routes import route_handlers
from server.bridge.bridge import EngineBridge
from server.generation.admit import with_ticket
from server.generation.model import Loaded, ServedModel
from server.generation.request import StrictRequest
from server.generation.serving import DEPENDENCIES, Serving
from server.http.apis import table
from server.http.errors import error_response
from server.http.origins import cors_config
from server.http.paths import short_names
from server.settings.settings import Settings
from server.tenants.keys import key_guard

FLUSH_SECONDS = 3.0
"""Time that the last spans get at the end of the server."""


def create_app(
    settings: Settings,
    *,
    load: Callable[[], Loaded] | None = None,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> Litestar:
    """Build the application. Its lifespan loads the engine.

    ``load`` replaces the loader of ``settings.model``. ``on_event`` runs on the event loop when
    the engine is ready and when it has died.
    ``with_edge`` wraps the result; without it no request has a tenant.
    """
    keys = keys_of(settings)
    app = Litestar(
        route_handlers=route_handlers(settings, has_keys=bool(keys)),
        lifespan=[
            partial(keys_lifespan, settings, keys),
            partial(engine_lifespan, settings, load, on_event),
            partial(tracing_lifespan, settings),
        ],
        dependencies=DEPENDENCIES,
        middleware=[key_guard(keys), with_ticket],
        exception_handlers={Exception: error_response},
        cors_config=cors_config(settings),
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_size,
        openapi_config=None,  # server.openapi serves the document, without Litestar's pages
        logging_config=None,
    )
    app.state.api_keys = keys
    app.state.short_names = short_names(table())
    app.state.response_store = ResponseStore(
        settings.max_stored_responses, settings.max_stored_response_bytes
    )
    return app


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
