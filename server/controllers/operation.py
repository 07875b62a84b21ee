"""Routes of the operator: health, statistics, metrics, records of requests."""

from __future__ import annotations

from litestar import Controller

from server.controllers.health import HealthController
from server.controllers.metrics import MetricsController
from server.controllers.requests import RequestController

OPERATION_CONTROLLERS: tuple[type[Controller], ...] = (
    HealthController,
    MetricsController,
    RequestController,
)
