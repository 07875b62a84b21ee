"""Routing: what handlers of the router share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from server.errors import APIError
from server.route.config import RouteConfig
from server.route.fleet import Fleet
from server.route.model import Model
from server.route.responses import ResponseIndex
from server.route.traffic import Traffic
from server.settings import Settings
from server.stalls import StallWatch

OLLAMA_TAG = ":latest"


@dataclass(slots=True)
class Routing:
    """Event loop only."""

    settings: Settings
    config: RouteConfig
    fleet: Fleet
    traffic: Traffic = field(init=False)
    stalls: StallWatch = field(default_factory=lambda: StallWatch(asyncio.get_running_loop()))
    responses: ResponseIndex = field(default_factory=ResponseIndex)
    created: int = field(default_factory=lambda: int(time.time()))
    """The router's start, in Unix seconds."""
    names: dict[str, str] = field(init=False)
    """Every name that requests may use, with the name of its model."""

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.settings.max_body_size, self.settings.rate_limit)
        self.names = self.config.names()

    def default_model(self) -> Model | None:
        """The model of requests that name none."""
        if self.config.default is not None:
            return self.model(self.config.default)
        models = list(self.fleet.models.values())
        return models[0] if len(models) == 1 else None

    def model(self, name: str, *, is_ollama: bool = False) -> Model:
        """Find a model. Raises APIError."""
        if is_ollama and name not in self.names:
            name = name.removesuffix(OLLAMA_TAG)
        if name not in self.names:
            raise APIError(
                404,
                f"The model '{name[:128]}' does not exist; GET /v1/models lists those that do.",
                code="model_not_found",
                param="model",
            )
        return self.fleet.models[self.names[name]]
