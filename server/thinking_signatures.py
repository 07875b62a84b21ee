"""Signatures of thinking in the Messages API: they can carry thinking that is not shown."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from schemas.limits import MAX_UNPACKED

SHOWN = "roseinfer"
"""The signature of thinking that is shown. Nobody checks it, but clients require one."""

_PREFIX = "roseinfer:"

_MAX_RATIO = 1032
"""Bytes that one byte of deflate's format stands for at most (zlib, technical details)."""


class TooMuchThinking(Exception):
    """The signatures of a request carry more than MAX_UNPACKED bytes."""


def signature_of(thinking: str) -> str:
    """The signature that stands for omitted thinking, so that the next request can repeat it."""
    return _PREFIX + urlsafe_b64encode(zlib.compress(thinking.encode(), 1)).decode()


class Unpacker:
    """Unpacks the signatures of one request, to MAX_UNPACKED bytes together."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_UNPACKED

    def thinking_in(self, signature: str) -> str:
        """The thinking that a signature carries. Signatures of other servers carry none.

        Raises TooMuchThinking. A signature that cannot be unpacked counts with the most bytes that
        one of its length could hold.
        """
        if not signature.startswith(_PREFIX):
            return ""
        try:
            return self._unpacked(urlsafe_b64decode(signature.removeprefix(_PREFIX))).decode()
        except (ValueError, zlib.error):
            return ""

    def _unpacked(self, packed: bytes) -> bytes:
        if self._left < 0:
            raise TooMuchThinking
        try:
            data = zlib.decompressobj().decompress(packed, self._left + 1)  # 0: without limit
        except zlib.error:
            self._left -= min(len(packed) * _MAX_RATIO, self._left + 1)
            raise
        self._left -= len(data)
        if self._left < 0:
            raise TooMuchThinking
        return data
