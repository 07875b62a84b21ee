"""ResponseIndex: which server keeps which response of the Responses API."""

from __future__ import annotations

import re

from server.route.upstream import Upstream
from server.shelves import Shelves

MAX_RESPONSES = 10_000
HEAD_SIZE = 4096
"""Bytes of an answer in which its id is looked for."""

_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')


class ResponseIndex:
    """Event loop only. A tenant finds only its own responses.

    Of too many, the oldest of the tenant with the most are forgotten first.
    """

    def __init__(self) -> None:
        self._places: Shelves[str, tuple[str, Upstream]] = Shelves(MAX_RESPONSES, MAX_RESPONSES)

    def note(self, answer: bytes, tenant: str, model: str, upstream: Upstream) -> None:
        """Remember where the response is whose answer begins with these bytes."""
        found = _ID.search(answer[:HEAD_SIZE])
        if found:
            response_id = found[1].decode()
            self._places.pop(tenant, response_id)
            self._places.put(tenant, response_id, (model, upstream), 1)

    def find(self, response_id: str, tenant: str) -> tuple[str, Upstream] | None:
        """The model and the server of a response."""
        return self._places.get(tenant, response_id)
