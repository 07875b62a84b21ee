"""UiFile: one static file of the page, read once and kept in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("static")
INDEX = "index.html"

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Every kind of file that the page has; Litestar adds the charset of texts.

Another kind is a KeyError when the server starts.
"""


@dataclass(frozen=True, slots=True)
class UiFile:
    """The bytes of a file, with their media type and a strong ETag."""

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> UiFile:
        """Read a file of the page."""
        content = path.read_bytes()
        digest = hashlib.blake2b(content, digest_size=12).hexdigest()
        return cls(content, MEDIA_TYPES[path.suffix], f'"{digest}"')

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether a client that sends this ``If-None-Match`` has the file (RFC 9110, 13.1.2)."""
        if if_none_match is None:
            return False
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return "*" in tags or self.etag in tags


def read_files(folder: Path = FOLDER) -> dict[str, UiFile]:
    """Every file below the folder by its path from there, with ``/`` between names."""
    return {
        path.relative_to(folder).as_posix(): UiFile.read(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
