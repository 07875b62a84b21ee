"""The list of APIs, and what their handlers depend on."""

from __future__ import annotations

from litestar import Controller
from litestar.datastructures import State
from litestar.di import Provide

from server.apis.anthropic import routes as anthropic
from server.apis.ollama import routes as ollama
from server.apis.openai import routes as openai
from server.apis.operation import routes as operation
from server.apis.pooling import routes as pooling
from server.apis.responses import routes as responses
from server.generation.serving import Serving

CONTROLLERS: list[type[Controller]] = [
    controller
    for api in (openai, responses, anthropic, ollama, pooling, operation)
    for controller in api.ROUTES
]
"""The routes of all APIs. A new API is one folder and its name here."""


def _serving(state: State) -> Serving:
    serving: Serving = state.serving
    return serving


DEPENDENCIES = {"serving": Provide(_serving, sync_to_thread=False)}
