"""Tenant: the party that a request is counted for. Keys: the API keys that tenants hold."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from server.http.errors import APIError
from server.settings.key_file import ApiKey

SCOPE_KEY = "tenant"  # key in the ``state`` of an ASGI scope


@dataclass(frozen=True, slots=True)
class Tenant:
    """The holder of an API key or, of a request without a valid key, the client's address.

    ``name`` is unique and safe in logs and metrics. It is never the key. ``salt`` keeps the
    tenant's prefixes in the cache apart from those of other salts. It is secret: it is never
    logged or sent. The empty salt is shared by all tenants that have it.
    """

    name: str
    salt: str = ""
    has_key: bool = False

    def salted(self, cache_salt: str | None) -> str:
        """Combine the salt with that of a request, which contains no slash."""
        return f"{self.salt}/{cache_salt or ''}" if self.salt else cache_salt or ""


def tenant_of(scope: Any) -> Tenant:
    """The tenant of an HTTP scope. KeyError: ``with_admission`` did not see it."""
    tenant: Tenant = scope["state"][SCOPE_KEY]
    return tenant


LOCAL = Tenant("local")  # everyone behind a Unix socket
UNKNOWN = Tenant("unknown")  # whose address a trusted proxy reports, but not as an IP address
PREFIX_LENGTH = 64  # bits of an IPv6 address; one client usually has all addresses with the same


def tenant_at(client: tuple[str, int] | None) -> Tenant:
    """The tenant of a connection from ``client``; None is a Unix socket."""
    return LOCAL if client is None else _tenant_at(client[0])


@lru_cache(maxsize=4096)
def _tenant_at(host: str) -> Tenant:
    try:
        address = ip_address(host)
    except ValueError:
        return UNKNOWN
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return Tenant(str(IPv6Network((int(address), PREFIX_LENGTH), strict=False)))
        address = address.ipv4_mapped
    return Tenant(str(address))


class Keys:
    """The accepted API keys. Without any, every request is accepted.

    Keys are looked up by digest, so the time of a look-up reveals nothing of a key, and keys may
    be any text. Event loop only.
    """

    def __init__(
        self, api_keys: Iterable[ApiKey] = (), *, share_prefix_cache: bool = False
    ) -> None:
        self._secret = secrets.token_bytes(32)
        self._shares_prefix_cache = share_prefix_cache
        self._numbers: dict[bytes, int] = {}  # of all keys without a name, also of former ones
        self.replace(api_keys)

    def replace(self, api_keys: Iterable[ApiKey]) -> None:
        """Accept these keys instead. Tenants of keys that stay are the same as before.

        What is held for a tenant goes by its name: budgets, rates, stored responses. So a name
        never passes from one key to another, wherever the keys are in the file.
        """
        self._tenants: dict[bytes, Tenant] = {}
        for api_key in api_keys:
            digest = _digest(api_key.key.encode())
            if digest not in self._tenants:
                name = api_key.name
                if not name:  # its number is its own while the process runs
                    name = f"key#{self._numbers.setdefault(digest, len(self._numbers) + 1)}"
                self._tenants[digest] = Tenant(name, self._salt(api_key), has_key=True)

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def find(self, token: bytes) -> Tenant | None:
        """The holder of a key, if it is one. An empty token is none."""
        return self._tenants.get(_digest(token)) if token else None

    def tenant(
        self, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None
    ) -> Tenant:
        """The tenant of a request: the holder of the key in the headers, else the client's address.

        A missing or wrong key is refused by ``key_guard``: only after routing is it known whether
        the route needs one.
        """
        if self:
            seen: set[bytes] = set()
            for name, value in headers:
                if name in KEY_HEADERS and name not in seen:  # the first of each counts
                    seen.add(name)
                    if tenant := self.find(token_in(name, value)):
                        return tenant
        return tenant_at(client)

    def _salt(self, api_key: ApiKey) -> str:
        """A salt of the name, or of a key without one, that only this process can compute."""
        if self._shares_prefix_cache:
            return ""
        text = f"name {api_key.name}" if api_key.name else f"key {api_key.key}"
        return hashlib.blake2b(text.encode(), key=self._secret, digest_size=16).hexdigest()


KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})  # OpenAI's and Anthropic's


def token_in(name: bytes, value: bytes) -> bytes:
    """The key in a header; empty if there is none."""
    if name == b"x-api-key":
        return value.strip()
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def key_guard(keys: Keys) -> Callable[[ASGIApp], ASGIApp]:
    """Refuse requests without one of the keys, if there are any, before any work.

    A middleware of the application: it runs before those of a route, which take budgets. A
    guard of Litestar would run after them. ``opt={"public": True}`` exempts a route.
    """

    def middleware(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if keys and scope["type"] == ScopeType.HTTP and not _is_allowed(scope):
                raise _refusal(scope)
            await app(scope, receive, send)

        return wrapped

    return middleware


def _is_allowed(scope: HTTPScope) -> bool:
    # Browsers send CORS preflights without a key.
    is_preflight = scope["method"] == HttpMethod.OPTIONS
    is_public = bool(scope["route_handler"].opt.get("public"))
    return is_preflight or is_public or tenant_of(scope).has_key


def _refusal(scope: HTTPScope) -> APIError:
    message, code = "You did not provide an API key.", None
    if any(
        value.partition(b" ")[2] if name == b"authorization" else value
        for name, value in scope["headers"]
        if name in KEY_HEADERS
    ):
        message, code = "Incorrect API key provided.", "invalid_api_key"
    return APIError(401, message, code=code, headers={"www-authenticate": "Bearer"})
