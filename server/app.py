"""create_app: routes, exception handlers and lifespan in one application."""

from __future__ import annotations

from collections.abc import Callable

from core.thread import Event
from server.access import keys_lifespan, keys_of
from server.body import StrictRequest
from server.controllers.ticketed import admit_requests
from server.cors import cors_config
from server.dependencies import DEPENDENCIES
from server.errors import error_response
from server.lifespan import engine_lifespan
from server.loaded import Loaded
from server.plain_litestar import PlainLitestar
from server.routes import route_handlers
from server.settings import Settings
from server.tenants.guard import key_guard
from server.tracing.lifespan import tracing_lifespan


def create_app(
    settings: Settings,
    *,
    load: Callable[[], Loaded] | None = None,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> PlainLitestar:
    """Build the application. Its lifespan loads the engine.

    ``load`` replaces the loader of ``settings.model``. ``on_event`` runs on the event loop when
    the engine is ready and when it has died.
    ``with_edge`` wraps the result; without it no request has a tenant.
    """
    keys = keys_of(settings)
    app = PlainLitestar(
        route_handlers=route_handlers(settings, has_keys=bool(keys)),
        lifespan=[
            keys_lifespan(settings, keys),
            engine_lifespan(settings, load, on_event),
            tracing_lifespan(settings),
        ],
        dependencies=DEPENDENCIES,
        middleware=[key_guard(keys)],
        exception_handlers={Exception: error_response},
        cors_config=cors_config(settings),
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_size,
        openapi_config=None,  # server.openapi serves the document, without Litestar's pages
        logging_config=None,
    )
    app.state.api_keys = keys
    admit_requests(app, settings, keys)
    return app
