"""create_app: the router's application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from server.admission.control import Decision
from server.http.errors import error_response
from server.http.origins import HostPolicy, cors_config
from server.router.config.config import RouteConfig
from server.router.fleet import Fleet
from server.router.routes import CONTROLLERS
from server.router.routing import Routing
from server.router.traffic import Traffic
from server.settings.settings import Settings
from server.tenants.access import keys_lifespan, keys_of
from server.tenants.tenant import key_guard


def create_app(config: RouteConfig, settings: Settings, environ: Mapping[str, str]) -> Litestar:
    """Build the application. Its lifespan starts and stops the models' processes.

    ``environ`` is their environment. Of the settings, those of the front matter. ``with_edge``
    wraps the result.
    """
    keys, policy, traffic = keys_of(settings), HostPolicy.of(settings), Traffic(settings)

    def decide(scope: Any) -> Decision:
        """``with_traffic`` and the servers behind decide the rest."""
        tenant = keys.tenant(scope["headers"], scope.get("client"))
        return Decision(tenant, policy.refusal(scope["headers"], scope["http_version"]))

    @asynccontextmanager
    async def fleet_lifespan(app: Litestar) -> AsyncIterator[None]:
        fleet = Fleet(config, environ)
        routing = Routing(settings, config, fleet, traffic)
        app.state.routing, app.state.stalls = routing, routing.stalls
        fleet.start()
        try:
            yield
        finally:
            await fleet.close()

    app = Litestar(
        route_handlers=list(CONTROLLERS),
        lifespan=[partial(keys_lifespan, settings, keys), fleet_lifespan],
        dependencies={"routing": Provide(_routing, sync_to_thread=False)},
        middleware=[key_guard(keys)],
        exception_handlers={Exception: error_response},
        cors_config=cors_config(settings),
        request_max_body_size=None,  # HeldBody limits it
        openapi_config=None,
        logging_config=None,
    )
    app.state.api_keys, app.state.decide = keys, decide
    app.state.open_requests, app.state.is_alive = traffic, lambda: True  # asked on the event loop
    app.state.short_names = frozenset({"models", "responses"})  # others are passed on as they are
    return app


def _routing(state: State) -> Routing:
    routing: Routing = state.routing
    return routing
