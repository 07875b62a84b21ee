"""create_app: the router's application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from server.app.access import keys_lifespan, keys_of
from server.http.errors import error_response
from server.http.origins import cors_config
from server.router.config.config import RouteConfig
from server.router.control import decide_by_caller
from server.router.routes import CONTROLLERS
from server.router.routing import Routing
from server.router.upstreams.fleet import Fleet
from server.settings.settings import Settings
from server.tenants.guard import key_guard


def create_app(config: RouteConfig, settings: Settings, environ: Mapping[str, str]) -> Litestar:
    """Build the application. Its lifespan starts and stops the models' processes.

    ``environ`` is their environment. Of the settings, those of the front matter. ``with_edge``
    wraps the result.
    """
    keys = keys_of(settings)
    app = Litestar(
        route_handlers=list(CONTROLLERS),
        lifespan=[
            partial(keys_lifespan, settings, keys),
            _fleet_lifespan(config, settings, environ),
        ],
        dependencies={"routing": Provide(_routing, sync_to_thread=False)},
        middleware=[key_guard(keys)],
        exception_handlers={Exception: error_response},
        cors_config=cors_config(settings),
        request_max_body_size=None,  # HeldBody limits it
        openapi_config=None,
        logging_config=None,
    )
    app.state.api_keys = keys
    app.state.decide = decide_by_caller(settings, keys)
    app.state.is_alive = lambda: True  # it is asked on the event loop
    return app


def _fleet_lifespan(
    config: RouteConfig, settings: Settings, environ: Mapping[str, str]
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        fleet = Fleet(config, environ)
        routing = Routing(settings, config, fleet)
        app.state.routing, app.state.stalls = routing, routing.stalls
        app.state.open_requests = routing.traffic
        fleet.start()
        try:
            yield
        finally:
            await fleet.close()

    return lifespan


def _routing(state: State) -> Routing:
    routing: Routing = state.routing
    return routing
