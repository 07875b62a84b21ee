"""Content hashes of full blocks: sequences with equal prefixes share blocks."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

DIGEST_SIZE = 16
"""Bytes. The hash is cryptographic: a collision would expose one client's context to another."""

HASH_SIZE = 2 * DIGEST_SIZE
"""A hash is a digest of the salt, then one of the content."""


def root_hash(cache_salt: str) -> bytes:
    """Parent of the first block of a sequence. Sequences share blocks only if salts are equal."""
    salt = hashlib.blake2b(cache_salt.encode(), digest_size=DIGEST_SIZE).digest()
    return salt + bytes(DIGEST_SIZE)


def block_hash(parent: bytes, token_ids: Iterable[int]) -> bytes:
    """Hash of a full block: of its tokens and, through ``parent``, of all tokens before them."""
    tokens = array("i", token_ids).tobytes()
    digest = hashlib.blake2b(tokens, digest_size=DIGEST_SIZE, key=parent[DIGEST_SIZE:]).digest()
    return parent[:DIGEST_SIZE] + digest


def content_of(hashed: bytes) -> bytes:
    """The part of a block's hash that does not depend on the salt."""
    return hashed[DIGEST_SIZE:]
