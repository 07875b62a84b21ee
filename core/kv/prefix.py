"""Content hashes of full blocks: sequences with equal prefixes share blocks."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

DIGEST_SIZE = 16
"""Bytes. The hash is cryptographic: a collision would expose one client's context to another."""


def root_hash(cache_salt: str) -> bytes:
    """Parent of the first block of a sequence. Sequences share blocks only if salts are equal."""
    return hashlib.blake2b(cache_salt.encode(), digest_size=DIGEST_SIZE).digest()


def block_hash(parent: bytes, token_ids: Iterable[int]) -> bytes:
    """Hash of a full block: of its tokens and, through ``parent``, of all tokens before them."""
    tokens = array("i", token_ids).tobytes()
    return hashlib.blake2b(tokens, digest_size=DIGEST_SIZE, key=parent).digest()
