"""Requests with JSON bodies to a server that a benchmark has started."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

TIMEOUT = 600.0
"""Seconds; an answer may take long on a busy machine."""

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


def post(url: str, body: dict[str, Any]) -> bytes:
    """Send a request; the body of its answer. Raises HTTPError for a status of 400 or more."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with _opener.open(request, timeout=TIMEOUT) as answer:
        found: bytes = answer.read()
        return found


def post_json(url: str, body: dict[str, Any]) -> Any:
    """The same, decoded."""
    return json.loads(post(url, body))
