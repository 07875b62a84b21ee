"""HeadAdmission: what the protocol asks when a head is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from server.admission.decision import SCOPE_KEY, Asked, Decide
from server.http.paths import path_of_url
from server.net.early_answer import early_answer
from server.net.head import EarlyAnswer, Head
from server.observe.log import RequestLog


class HeadAdmission:
    """Answers requests without room before the application sees them. Event loop only."""

    def __init__(
        self,
        decide: Decide,
        paths: Mapping[str, str],
        records: Callable[[], RequestLog],
        *,
        has_proxy: bool,
    ) -> None:
        """``paths`` are those that take tickets, in every form, with those of their routes.

        ``records`` is called for requests. With a proxy, only the application knows the client.
        """
        self._decide = decide
        self._paths = paths
        self._records = records
        self._has_proxy = has_proxy

    def admit(self, head: Head) -> dict[str, Any] | EarlyAnswer:
        """The 429 of a request without room, or what its scope's ``state`` gets.

        Other refusals are left to the application, and those with an ``Origin``, which need the
        headers of CORS.
        """
        if self._has_proxy:
            return {}
        path = head.url.partition(b"?")[0].decode("latin-1")
        if path not in self._paths:
            path = path_of_url(head.url)
        asked = Asked(head.method.decode(), path, head.headers, head.client, head.version)
        decision = self._decide(asked)
        error = decision.error
        if error is None or error.status != 429 or any(k == b"origin" for k, _ in head.headers):
            return {SCOPE_KEY: decision}
        return early_answer(error, head, self._paths[path], decision.tenant, self._records())
