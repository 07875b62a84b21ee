"""Routing: what handlers of the router share, and the statistics of it.

ResponseIndex: which server keeps which response of the Responses API.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import Any

from schemas.route import RoutedModelStats, RouterStats, UpstreamStats
from server.http.errors import APIError
from server.observe.stalls import StallWatch
from server.router.config.config import RouteConfig
from server.router.fleet import Fleet
from server.router.traffic import Traffic
from server.router.upstream import RoutedModel, Upstream
from server.settings.settings import Settings
from server.tenants.shelves import Shelves

MAX_RESPONSES = 10_000
HEAD_SIZE = 4096  # bytes of an answer in which its id is looked for

_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')


class ResponseIndex(Shelves[str, tuple[str, Upstream]]):
    """By tenant and id: the model and the server of a response. Event loop only."""

    def __init__(self) -> None:
        super().__init__(MAX_RESPONSES, MAX_RESPONSES)

    def note(self, tenant: str, model: str, answer: bytes, upstream: Upstream) -> None:
        """Remember where the response is whose answer begins with these bytes."""
        found = _ID.search(answer[:HEAD_SIZE])
        if found:
            response_id = found[1].decode()
            self.pop(tenant, response_id)
            self.put(tenant, response_id, (model, upstream), 1)


@dataclass(slots=True)
class Routing:
    """Event loop only."""

    settings: Settings
    config: RouteConfig
    fleet: Fleet
    traffic: Traffic
    stalls: StallWatch = field(default_factory=lambda: StallWatch(asyncio.get_running_loop()))
    responses: ResponseIndex = field(default_factory=ResponseIndex)
    created: int = field(default_factory=lambda: int(time.time()))
    """The router's start, in Unix seconds."""

    def default_model(self) -> RoutedModel | None:
        """The model of requests that name none."""
        if self.config.default is not None:
            return self.model(self.config.default)
        models = list(self.fleet.models.values())
        return models[0] if len(models) == 1 else None

    def model(self, name: str, *, tag: str = "") -> RoutedModel:
        """Find a model, also if ``tag`` follows its name. Raises APIError."""
        names = self.fleet.names
        if name not in names:
            name = name.removesuffix(tag)
        if name not in names:
            raise APIError(
                404,
                f"The model '{name[:128]}' does not exist; GET /v1/models lists those that do.",
                code="model_not_found",
                param="model",
            )
        return self.fleet.models[names[name]]


def statistics(routing: Routing) -> RouterStats:
    return RouterStats(
        num_open=routing.traffic.num_open,
        num_waiting=routing.fleet.line.held,
        event_loop=routing.stalls.stats,
        models={name: _model_stats(model) for name, model in routing.fleet.models.items()},
    )


def _model_stats(model: RoutedModel) -> RoutedModelStats:
    now = asyncio.get_running_loop().time()
    counts: dict[str, Any] = {f"num_{name}": count for name, count in model.counts.items()}
    servers = [
        UpstreamStats(
            address=upstream.address.text,
            num_running=upstream.num_open,
            is_available=upstream.is_available(now),
        )
        for upstream in model.upstreams
    ]
    return RoutedModelStats(
        state=model.state.value,
        num_running=model.num_inside,
        num_waiting=len(model.waiting),
        last_load_seconds=round(model.load_seconds, 3) if model.counts["loads"] else 0.0,
        failure=model.failure,
        servers=servers,
        **counts,
    )
