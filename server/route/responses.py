"""ResponseIndex: which server keeps which response of the Responses API."""

from __future__ import annotations

import re
from collections import OrderedDict

from server.route.upstream import Upstream

MAX_RESPONSES = 10_000
HEAD_SIZE = 4096
"""Bytes of an answer in which its id is looked for."""

_ID = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')


class ResponseIndex:
    """Event loop only. A tenant finds only its own responses. The oldest are forgotten first."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, tuple[str, str, Upstream]] = OrderedDict()

    def note(self, answer: bytes, tenant: str, model: str, upstream: Upstream) -> None:
        """Remember where the response is whose answer begins with these bytes."""
        found = _ID.search(answer[:HEAD_SIZE])
        if found:
            self._places[found[1].decode()] = (tenant, model, upstream)
            if len(self._places) > MAX_RESPONSES:
                self._places.popitem(last=False)

    def find(self, response_id: str, tenant: str) -> tuple[str, Upstream] | None:
        """The model and the server of a response."""
        owner, model, upstream = self._places.get(response_id, ("", "", None))
        return (model, upstream) if upstream is not None and owner == tenant else None
