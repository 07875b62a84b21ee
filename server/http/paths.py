"""Paths as Litestar routes them: extra slashes make no difference to it.

with_paths: routes below /v1 answer without that prefix too, extra slashes go, HEAD is GET.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

from litestar import Litestar
from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar.utils import normalize_path


def normalize(scope: Scope) -> None:
    """Give an HTTP scope the path that its route is found by.

    What looks at the path before or after the router then sees what the router sees.
    """
    path = normalize_path(scope["path"])
    if path != scope["path"]:
        scope["path"] = path
        scope["raw_path"] = quote(path).encode()


PREFIX = "/v1"

METHOD_KEY = "received_method"
"""Key in the ``state`` of an ASGI scope: the client's method, where the scope's is another."""


def with_paths(app: ASGIApp, routed: Litestar) -> ASGIApp:
    """Wrap ``app``: a path such as ``/chat/completions`` becomes ``/v1/chat/completions``.

    Some clients append the names of OpenAI's routes to a base URL without ``/v1``. A path stays as
    it is if its first name is that of another route of ``routed``. Before that, the path becomes
    what the router makes of it (``normalize``), so that no spelling of a path passes by a limit.
    HEAD is answered like GET, without the body.
    """
    short = _short_names(routed)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            normalize(scope)
            if _first_name(scope["path"]) in short:
                scope["path"] = PREFIX + scope["path"]
                scope["raw_path"] = PREFIX.encode() + scope["raw_path"]
            if scope["method"] == HttpMethod.HEAD:
                scope, send = _as_get(scope), _without_body(send)
        await app(scope, receive, send)

    return wrapped


def _as_get(scope: Any) -> Any:
    """A copy, because the server below must go on to see HEAD. Nothing writes to its body."""
    scope.setdefault("state", {})[METHOD_KEY] = scope["method"]
    scope.pop("extensions", None)
    return {**scope, "method": HttpMethod.GET}


def _without_body(send: Send) -> Send:
    def send_head(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.body":
            message["body"] = b""
        return send(message)

    return send_head


def _short_names(routed: Litestar) -> set[str]:
    """The first names of paths below the prefix that are of no other route."""
    below, others = set(), set()
    for route in routed.routes:
        if route.path.startswith(PREFIX + "/"):
            below.add(_first_name(route.path.removeprefix(PREFIX)))
        else:
            others.add(_first_name(route.path))
    return below - others


def _first_name(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]
