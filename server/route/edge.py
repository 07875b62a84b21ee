"""with_edge: what every request of a router passes before Litestar routes it."""

from __future__ import annotations

from litestar import Litestar
from litestar.types import ASGIApp

from server.head import with_head
from server.hosts import HostPolicy, with_known_hosts
from server.request_id import with_request_id
from server.settings import Settings
from server.short_paths import with_short_paths
from server.tenants.middleware import with_tenant


def with_edge(app: Litestar, settings: Settings) -> ASGIApp:
    """Wrap the application: hosts and origins, tenant, id and access log, short paths."""
    inner = with_known_hosts(with_head(app), HostPolicy.of(settings))
    return with_short_paths(with_tenant(with_request_id(inner), app.state.api_keys), app)
