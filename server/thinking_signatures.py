"""Signatures of thinking in the Messages API: they can carry thinking that is not shown."""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from schemas.limits import MAX_TEXT

SHOWN = "roseinfer"
"""The signature of thinking that is shown. Nobody checks it, but clients require one."""

_PREFIX = "roseinfer:"


def signature_of(thinking: str) -> str:
    """The signature that stands for omitted thinking, so that the next request can repeat it."""
    return _PREFIX + urlsafe_b64encode(zlib.compress(thinking.encode(), 1)).decode()


def thinking_in(signature: str) -> str:
    """The thinking that a signature carries. Signatures of other servers carry none."""
    if not signature.startswith(_PREFIX):
        return ""
    try:
        packed = urlsafe_b64decode(signature.removeprefix(_PREFIX))
        return zlib.decompressobj().decompress(packed, MAX_TEXT).decode()
    except (binascii.Error, zlib.error, ValueError):
        return ""
