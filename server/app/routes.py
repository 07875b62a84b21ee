"""The list of APIs, and everything that the application routes to."""

from __future__ import annotations

from litestar import Controller
from litestar.handlers import HTTPRouteHandler

from server.apis.anthropic import routes as anthropic
from server.apis.ollama import routes as ollama
from server.apis.openai import routes as openai
from server.apis.operation import routes as operation
from server.apis.pooling import routes as pooling
from server.apis.responses import routes as responses
from server.openapi.describe import openapi_route
from server.settings.settings import Settings
from server.ui.routes import ui_routes

CONTROLLERS: list[type[Controller]] = [
    controller
    for api in (openai, responses, anthropic, ollama, pooling, operation)
    for controller in api.ROUTES
]
"""The routes of all APIs. A new API is one folder and its name here."""


def route_handlers(
    settings: Settings, *, has_keys: bool
) -> list[type[Controller] | HTTPRouteHandler]:
    """The controllers of the API, its description, and the page unless it is turned off."""
    return [
        *CONTROLLERS,
        openapi_route(CONTROLLERS, has_keys=has_keys),
        *(ui_routes() if settings.ui else ()),
    ]
