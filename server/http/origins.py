"""HostPolicy: refuses requests that a web page sends without permission.

A page in a browser on the operator's machine can reach a server on loopback. Browsers name the
page in ``Origin``. A page whose own name was rebound to a loopback address (DNS rebinding) sends
that name in ``Host``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from litestar.config.cors import CORSConfig

from server.http.errors import APIError
from server.settings.settings import Settings, is_loopback

ANY = "*"

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST_REFUSED = "This Host is not allowed. The server's --allowed-hosts can allow it."
_ORIGIN_REFUSED = "This Origin is not allowed. The server's --allowed-origins can allow it."

_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]/@\s]+?)\.?)(?::\d{0,5})?")
_ORIGIN = re.compile(r"https?://(?P<authority>[^/?#]+)")


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """Which values of ``Host`` and ``Origin`` are accepted.

    ``hosts`` are names in lower case; None accepts every host and origin. ``origins`` are accepted
    besides those on one of the hosts; they may contain ANY.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> HostPolicy:
        """The policy of a server. On loopback, only its own names are accepted by default.

        No browser connects to a Unix socket.
        """
        is_on_loopback = settings.uds is None and is_loopback(settings.host)
        given = [_name(host) for host in settings.allowed_hosts]
        is_open = ANY in given if given else not is_on_loopback
        names = {settings.host.lower(), *LOOPBACK_NAMES, *given} - {""}
        return cls(
            hosts=None if is_open else frozenset(names),
            origins=frozenset(origin.lower() for origin in settings.allowed_origins),
        )

    def allows_host(self, host: str) -> bool:
        """Whether a ``Host`` header is accepted.

        An IP address always is: a page that was rebound has a name.
        """
        if self.hosts is None:
            return True
        name = _name(host)
        return name in self.hosts or _is_address(name)

    def allows_origin(self, origin: str) -> bool:
        origin = origin.strip().lower()
        if self.hosts is None or ANY in self.origins or origin in self.origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        return found is not None and _name(found["authority"]) in self.hosts

    def refusal(self, headers: Iterable[tuple[bytes, bytes]], version: str) -> APIError | None:
        """The 403 of a request with another host or origin. Its body is not read.

        A request with several hosts, or of HTTP/1.1 with none, gets 400 (RFC 9112, section 3.2).
        """
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            message = f"A request must have exactly one Host header, not {len(hosts)}."
            return _closing(400, message, "bad_request")
        for name, value in headers if self.hosts is not None else ():
            if name == b"host" and not self.allows_host(value.decode("latin-1")):
                return _closing(403, _HOST_REFUSED, "host_not_allowed")
            if name == b"origin" and not self.allows_origin(value.decode("latin-1")):
                return _closing(403, _ORIGIN_REFUSED, "origin_not_allowed")
        return None


def _closing(status: int, message: str, code: str) -> APIError:
    """The connection cannot be used again: the body is on it."""
    return APIError(status, message, code=code, headers={"connection": "close"})


def _name(authority: str) -> str:
    """The host of ``host:port`` in lower case, without brackets; empty if it is malformed."""
    found = _AUTHORITY.fullmatch(authority.strip())
    return (found["v6"] or found["name"]).lower() if found else ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def cors_config(settings: Settings) -> CORSConfig | None:
    """Litestar's configuration for the allowed origins. None: there are none."""
    if not settings.allowed_origins:
        return None
    return CORSConfig(
        allow_origins=list(settings.allowed_origins),
        allow_methods=["GET", "POST", "OPTIONS"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "x-roseinfer-ignored", "retry-after"],
        max_age=86400,
    )
