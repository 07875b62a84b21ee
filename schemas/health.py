"""GET /health, /livez and /readyz."""

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel

HealthStatus: TypeAlias = Literal["ok", "loading", "draining", "failed", "stalled"]
"""`ok` has status 200, the others 503. `stalled` is for /livez and /readyz only."""


class HealthResponse(ResponseModel, frozen=True, kw_only=True):
    """The server's state. `reason` explains a state other than ok."""

    status: HealthStatus
    reason: str | UnsetType = UNSET
