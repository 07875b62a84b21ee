"""Paths as Litestar routes them, and their short forms without /v1."""

from __future__ import annotations

from collections.abc import Awaitable, Container, Iterable
from functools import cache
from typing import Any
from urllib.parse import quote

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar.utils import normalize_path

from server.http.apis import table

PREFIX = "/v1"

METHOD_KEY = "received_method"
"""Key in the ``state`` of an ASGI scope: the client's method, where the scope's is another."""


def with_paths(app: ASGIApp, short: Container[str]) -> ASGIApp:
    """Wrap ``app``: a path such as ``/chat/completions`` becomes ``/v1/chat/completions``.

    Some clients append the names of OpenAI's routes to a base URL without ``/v1``. Paths whose
    first name is one of ``short`` get it. Before that, the path becomes what the router makes of
    it: extra slashes go, so that no spelling of a path passes by a limit. HEAD is answered like
    GET, without the body.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            path = normalize_path(scope["path"])
            if path != scope["path"]:
                scope["path"], scope["raw_path"] = path, quote(path).encode()
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


def short_names(paths: Iterable[str]) -> frozenset[str]:
    """The first names of ``paths`` below the prefix that are of no other path."""
    below, others = set(), set()
    for path in paths:
        if path.startswith(PREFIX + "/"):
            below.add(_first_name(path.removeprefix(PREFIX)))
        else:
            others.add(_first_name(path))
    return frozenset(below - others)


@cache
def short_forms() -> dict[str, str]:
    """The short forms of the paths in the table of APIs that have one, with these paths."""
    names = short_names(table())
    forms = {path.removeprefix(PREFIX): path for path in table() if path.startswith(PREFIX + "/")}
    return {form: path for form, path in forms.items() if _first_name(form) in names}


def full_path(path: str) -> str:
    """The path of the table that ``path`` is the short form of; else ``path`` itself."""
    return short_forms().get(path, path)


def _first_name(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]
