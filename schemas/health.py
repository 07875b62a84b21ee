"""GET /health."""

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel

HealthStatus: TypeAlias = Literal["ok", "loading", "draining", "failed"]
"""`ok` has status 200, the others 503."""


class HealthResponse(ResponseModel, frozen=True, kw_only=True):
    """The server's state. `reason` explains a state other than ok."""

    status: HealthStatus
    reason: str | UnsetType = UNSET
