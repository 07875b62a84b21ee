"""Keys: API keys and the tenants that hold them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from server.tenants.tenant import Tenant


class Keys:
    """The accepted API keys. Without any, every request is accepted.

    Keys are looked up by digest, so the time of a look-up reveals nothing of a key, and keys may
    be any text.
    """

    def __init__(self, api_keys: Iterable[str] = (), *, share_prefix_cache: bool = False) -> None:
        self._secret = secrets.token_bytes(32)
        self._shares_prefix_cache = share_prefix_cache
        self._tenants = {
            _digest(key.encode()): self._tenant(f"key#{number}", key)
            for number, key in enumerate(dict.fromkeys(api_keys), start=1)
        }

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def find(self, token: bytes) -> Tenant | None:
        """The holder of a key, if it is one. An empty token is none."""
        return self._tenants.get(_digest(token)) if token else None

    def _tenant(self, name: str, identity: str) -> Tenant:
        salt = ""
        if not self._shares_prefix_cache:
            salt = hashlib.blake2b(identity.encode(), key=self._secret, digest_size=16).hexdigest()
        return Tenant(name, salt, has_key=True)


def bearer_token(authorization: bytes) -> bytes:
    """The token of an ``Authorization`` header; empty if there is none."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
