"""with_edge: what every request passes before Litestar routes it."""

from __future__ import annotations

import time
from collections.abc import Callable

from litestar import Litestar
from litestar.types import ASGIApp

from server.head import with_head
from server.hosts import HostPolicy, with_known_hosts
from server.request_id import with_request_id
from server.settings import Settings
from server.short_paths import with_short_paths
from server.tenants.middleware import with_tenant
from server.turns import with_turns


def with_edge(
    app: Litestar, settings: Settings, *, clock: Callable[[], float] = time.perf_counter
) -> ASGIApp:
    """Wrap the application of ``create_app``.

    A short path becomes that of its route. A request gets its tenant, its id and its line in the
    access log, and waits for its turn. It is refused if its host or origin is not allowed.
    ``clock`` times the request; the engine's own times are of ``time.perf_counter``.
    """
    inner = with_known_hosts(with_head(app), HostPolicy.of(settings))
    known = with_tenant(with_request_id(with_turns(inner, app), clock), app.state.api_keys)
    return with_short_paths(known, app)
