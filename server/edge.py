"""with_edge: what every request passes before Litestar routes it."""

from __future__ import annotations

from litestar import Litestar
from litestar.types import ASGIApp

from server.request_id import with_request_id
from server.tenants.middleware import with_tenant


def with_edge(app: Litestar) -> ASGIApp:
    """Wrap the application of ``create_app``: request id and access log, tenant."""
    return with_request_id(with_tenant(app, app.state.api_keys))
