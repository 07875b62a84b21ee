"""Paths as Litestar routes them: extra slashes make no difference to it."""

from __future__ import annotations

from urllib.parse import quote, unquote

import httptools
from litestar.types import Scope
from litestar.utils import normalize_path


def normalize(scope: Scope) -> None:
    """Give an HTTP scope the path that its route is found by.

    What looks at the path before or after the router then sees what the router sees.
    """
    path = normalize_path(scope["path"])
    if path != scope["path"]:
        scope["path"] = path
        scope["raw_path"] = quote(path).encode()


def path_of_url(url: bytes) -> str:
    """The path of a request line's URL, as ``normalize`` leaves it. Empty if it is no URL."""
    try:
        path = httptools.parse_url(url).path or b""
    except httptools.HttpParserInvalidURLError:
        return ""
    return normalize_path(unquote(path.decode("latin-1")))
