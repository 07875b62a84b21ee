"""The five ASGI layers of our own between the protocol and a handler, from the outside in.

1. ``with_paths`` (``server.http``): a path as the router spells it, with ``/v1`` if that is
   missing; HEAD as GET.
2. ``with_trace`` (``server.observe``): the request's id, its trace and line in the access log, the
   stall detector.
3. ``with_admission`` (``server.admission``): the decision about host, origin, tenant, rates and
   budgets, with the ticket. It is made from the head, before the body is read.
4. ``key_guard`` (``server.tenants``): a key, on routes that need one. It runs after routing, as a
   middleware of the application.
5. ``with_ticket`` (``server.generation``), or ``with_traffic`` (``server.router``): what the
   client's leaving and the deadline end, on routes that do much work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from litestar import Litestar
from litestar.types import ASGIApp

from server.admission.control import with_admission
from server.http.paths import with_paths
from server.observe.access_log import with_trace


def with_edge(app: Litestar, *, clock: Callable[[], float] = time.perf_counter) -> ASGIApp:
    """Wrap the application of a ``create_app`` in the first three layers.

    ``app.state`` has the ``short_names`` of paths, and in its lifespan what may ``decide``, and the
    ``stalls``. ``clock`` times the request; the engine's own times are of ``time.perf_counter``.
    """
    traced = with_trace(with_admission(app), lambda: app.state.stalls, clock)
    return with_paths(traced, app.state.short_names)
