"""create_app: routes, exception handlers and lifespan in one application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from litestar import Litestar

from core.engine.thread import Event
from server.apis.responses.store import ResponseStore
from server.app.lifespan import engine_lifespan, tracing_lifespan
from server.app.routes import CONTROLLERS, DEPENDENCIES
from server.generation.middleware import with_ticket
from server.generation.model import Loaded
from server.generation.request import StrictRequest
from server.http.apis import table
from server.http.errors import error_response
from server.http.origins import cors_config
from server.http.paths import short_names
from server.openapi.describe import openapi_route
from server.settings.settings import Settings
from server.tenants.access import keys_lifespan, keys_of
from server.tenants.tenant import key_guard
from server.ui.routes import ui_routes


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
        route_handlers=[
            *CONTROLLERS,
            openapi_route(CONTROLLERS, DEPENDENCIES, has_keys=bool(keys)),
            *(ui_routes() if settings.ui else ()),
        ],
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
