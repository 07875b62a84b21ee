"""create_app: routes, exception handlers and lifespan in one application."""

from __future__ import annotations

from collections.abc import Callable

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.di import Provide

from core.build import LoadedEngine
from core.thread import Event
from server.auth import api_key_guard
from server.body import StrictRequest
from server.controllers import CONTROLLERS
from server.errors import error_response
from server.lifespan import engine_lifespan
from server.openapi.route import openapi_route
from server.serving import Serving
from server.settings import Settings


def create_app(
    settings: Settings,
    *,
    load: Callable[[], LoadedEngine] | None = None,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> Litestar:
    """Build the application. Its lifespan loads the engine.

    ``load`` replaces the loader of ``settings.model``. ``on_event`` runs on the event loop when
    the engine is ready and when it has died.
    """
    return Litestar(
        route_handlers=[
            *CONTROLLERS,
            openapi_route(CONTROLLERS, has_keys=bool(settings.api_keys)),
        ],
        lifespan=[engine_lifespan(settings, load, on_event)],
        dependencies={"serving": Provide(_serving, sync_to_thread=False)},
        exception_handlers={Exception: error_response},
        guards=[api_key_guard(settings.api_keys)] if settings.api_keys else None,
        cors_config=_cors(settings),
        request_class=StrictRequest,
        request_max_body_size=settings.max_body_size,
        openapi_config=None,  # server.openapi serves the document, without Litestar's pages
        logging_config=None,
    )


def _serving(state: State) -> Serving:
    serving: Serving = state.serving
    return serving


def _cors(settings: Settings) -> CORSConfig | None:
    if not settings.allowed_origins:
        return None
    return CORSConfig(
        allow_origins=list(settings.allowed_origins),
        allow_methods=["GET", "POST", "OPTIONS"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after"],
        max_age=86400,
    )
