"""route_handlers: everything that the application routes to."""

from __future__ import annotations

from litestar import Controller
from litestar.handlers import HTTPRouteHandler

from server.controllers import CONTROLLERS
from server.openapi.route import openapi_route
from server.settings import Settings
from server.ui.route import ui_routes


def route_handlers(
    settings: Settings, *, has_keys: bool
) -> list[type[Controller] | HTTPRouteHandler]:
    """The controllers of the API, its description, and the page unless it is turned off."""
    return [
        *CONTROLLERS,
        openapi_route(CONTROLLERS, has_keys=has_keys),
        *(ui_routes() if settings.ui else ()),
    ]
