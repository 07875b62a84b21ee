"""ASGI middleware: refuses requests that a web page sends without permission.

A page in a browser on the operator's machine can reach a server on loopback. Browsers name the
page in ``Origin``. A page whose own name was rebound to a loopback address (DNS rebinding) sends
that name in ``Host``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from server.addresses import is_loopback
from server.errors import APIError, send_error
from server.settings import Settings

ANY = "*"

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST_REFUSED = "This Host is not allowed. The server's --allowed-hosts can allow it."
_ORIGIN_REFUSED = "This Origin is not allowed. The server's --allowed-origins can allow it."

_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]/@\s]+?)\.?)(?::\d{0,5})?")
Checks = dict[bytes, tuple[Callable[[str], bool], str, str]]

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
        """Whether an ``Origin`` header is accepted."""
        origin = origin.strip().lower()
        if self.hosts is None or ANY in self.origins or origin in self.origins:
            return True
        found = _ORIGIN.fullmatch(origin)
        return found is not None and _name(found["authority"]) in self.hosts


def with_known_hosts(app: ASGIApp, policy: HostPolicy) -> ASGIApp:
    """Wrap ``app``. Other hosts and origins are answered 403 before the body is read.

    A request with several hosts, or of HTTP/1.1 with none, is answered 400 (RFC 9112, section 3.2).
    """
    checks: Checks = {
        b"host": (policy.allows_host, _HOST_REFUSED, "host_not_allowed"),
        b"origin": (policy.allows_origin, _ORIGIN_REFUSED, "origin_not_allowed"),
    }

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and (error := _fault(scope, checks)) is not None:
            await send_error(scope, send, error)
        else:
            await app(scope, receive, send)

    return wrapped


def _fault(scope: HTTPScope, checks: Checks) -> APIError | None:
    """Why the request is refused; None if it is not. The connection ends after the answer."""
    closing = {"connection": "close"}
    num_hosts = sum(name == b"host" for name, _ in scope["headers"])
    if num_hosts > 1 or (num_hosts == 0 and scope["http_version"] == "1.1"):
        message = f"A request must have exactly one Host header, not {num_hosts}."
        return APIError(400, message, code="bad_request", headers=closing)
    for name, value in scope["headers"]:
        if name in checks:
            is_allowed, message, code = checks[name]
            if not is_allowed(value.decode("latin-1")):
                return APIError(403, message, code=code, headers=closing)
    return None


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
