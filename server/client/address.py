"""Address: where a server listens."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address, or the path of a Unix socket. ``base`` is what comes before every path."""

    host: str = ""
    port: int = 0
    base: str = ""
    is_tls: bool = False
    socket_path: str = ""

    @property
    def authority(self) -> str:
        """The value of ``Host``."""
        if self.socket_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """For people."""
        if self.socket_path:
            return f"unix:{self.socket_path}"
        return f"http{'s' if self.is_tls else ''}://{self.authority}{self.base}"


def parse_url(url: str) -> Address:
    """The address of ``http://host:port`` or ``unix:/path``. Raises ValueError.

    A path at the end, such as ``/v1``, is that of OpenAI's routes, as in a client's base URL.
    """
    if url.startswith("unix:/"):
        return Address(socket_path=url.removeprefix("unix:"))
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        raise ValueError(f"{url} is neither http://HOST[:PORT] nor https://... nor unix:/PATH")
    is_tls = parts.scheme == "https"
    base = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, parts.port or (443 if is_tls else 80), base, is_tls)
