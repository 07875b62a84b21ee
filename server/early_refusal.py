"""EarlyRefusal: answers requests 429 from their heads while the queue is full.

It decides by the budget of choices as a ``Ticket`` does, in front of uvicorn's and Litestar's work
on a request.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from litestar import Litestar

from core.contract.errors import Unavailable
from server.connections.early import early_answer
from server.connections.turn_away import EarlyAnswer, Headers
from server.controllers.ticketed import ticketed_urls
from server.errors import to_api_error
from server.hosts import HostPolicy
from server.paths import path_of_url
from server.request_id import id_of
from server.serving import Serving
from server.tenants.address import tenant_at
from server.tenants.keys import KEY_HEADERS, Keys, token_in
from server.tenants.tenant import Tenant

_CHECKED_BY_APPLICATION = frozenset({b"origin", b"x-request-timeout"})


class EarlyRefusal:
    """A ``TurnAway`` for one application. Event loop only.

    It leaves to the application all that may need another answer: other methods and URLs, an
    address behind a proxy, an origin, hosts but one that is allowed, a deadline of the client,
    rates, keys that are missing, wrong or more than one, a body without room for its bytes, and a
    server that takes no requests.

    Requests of the tenant that have arrived but hold no ticket yet count as one choice each. So it
    may refuse a request for which there would be room because one of those fails.
    """

    def __init__(self, app: Litestar) -> None:
        """The application's lifespan has begun."""
        serving: Serving = app.state.serving
        keys: Keys = app.state.api_keys
        self._serving, self._keys = serving, keys
        self._loop = asyncio.get_running_loop()
        self._passed: Counter[str] = Counter()
        self._hosts = HostPolicy.of(serving.settings)
        self._has_proxy = serving.settings.forwarded_allow_ips is not None
        self._paths = ticketed_urls(app)

    def __call__(
        self, method: bytes, url: bytes, headers: Headers, client: tuple[str, int] | None
    ) -> EarlyAnswer | None:
        """The answer to a request for which there is no room, else None."""
        admission = self._serving.admission
        if method != b"POST" or self._has_proxy or admission.rates:
            return None
        path = self._paths.get(url.partition(b"?")[0]) or self._paths.get(path_of_url(url).encode())
        if path is None:
            return None
        tenant = self._tenant(headers, client)
        if tenant is None:
            return None
        num_before = self._serving.turns.num_waiting(tenant.name) + self._passed[tenant.name]
        if admission.choices.has_room(tenant.name, num_before + 1):
            self._pass(tenant.name)
            return None
        try:
            self._serving.bridge.check_accepting()
        except Unavailable:
            return None
        admission.refuse(admission.choices)
        error = to_api_error(admission.choices.refusal(1))
        records = self._serving.records
        return early_answer(error, "POST", path, tenant, id_of(headers), records)

    def _pass(self, tenant: str) -> None:
        """Count a request until it has begun, or waits for its turn."""
        self._passed[tenant] += 1
        self._loop.call_soon(self._forget, tenant)  # just before the request's task begins

    def _forget(self, tenant: str) -> None:
        self._passed[tenant] -= 1
        if not self._passed[tenant]:
            del self._passed[tenant]

    def _tenant(self, headers: Headers, client: tuple[str, int] | None) -> Tenant | None:
        """The tenant of a request, None if it is not clear."""
        tenant = None if self._keys else tenant_at(client)
        if sum(name == b"host" for name, _ in headers) != 1:
            return None
        num_keys = 0
        for name, value in headers:
            if name in _CHECKED_BY_APPLICATION:
                return None
            if name == b"host" and not self._hosts.allows_host(value.decode("latin-1")):
                return None
            if name in KEY_HEADERS:
                num_keys += 1
                if num_keys > 1:
                    return None
                if self._keys:
                    tenant = self._keys.find(token_in(name, value))
        return tenant
