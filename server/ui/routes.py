"""The routes of the page: ``GET /`` and the files that it asks for.

They need no API key: a browser cannot send one when it opens a page, and they hold no data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from server.http.errors import no_such_route

FOLDER = Path(__file__).with_name("static")
INDEX = "index.html"

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Of every kind of file; another one is a KeyError at start. Litestar adds the charset of texts."""


@dataclass(frozen=True, slots=True)
class UiFile:
    """The bytes of a file, with their media type and a strong ETag."""

    content: bytes
    media_type: str
    etag: str

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether a client that sends this ``If-None-Match`` has the file (RFC 9110, 13.1.2)."""
        tags = {tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")}
        return "*" in tags or self.etag in tags


def read_files(folder: Path = FOLDER) -> dict[str, UiFile]:
    """Every file below the folder by its path from there, with ``/`` between names."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            name = path.relative_to(folder).as_posix()
            found[name] = UiFile(content, MEDIA_TYPES[path.suffix], etag)
    return found


SECURITY_HEADERS = {
    # only files of this server, no inline script or style, no text that becomes HTML, no frame
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def ui_routes() -> list[HTTPRouteHandler]:
    """The routes of the page. Reads its files now; a request does no more than a look-up."""
    files = read_files()

    @get(
        ["/", "/ui/{name:path}"],
        opt={"public": True},
        include_in_schema=False,
        sync_to_thread=False,
    )
    def file_of_page(
        request: Request[Any, Any, Any], name: FromPath[str | None] = None
    ) -> Response[bytes | None]:
        """The file, or 304 if the client has it. ``no-cache`` makes browsers ask each time."""
        file = files.get(INDEX if name is None else str(name).removeprefix("/"))
        if file is None:
            raise no_such_route()
        headers = {**SECURITY_HEADERS, "etag": file.etag, "cache-control": "no-cache"}
        if file.is_known(request.headers.get("if-none-match")):
            return Response(None, status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)

    return [file_of_page]
