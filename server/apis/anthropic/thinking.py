"""Signatures of thinking in the Messages API: they can carry thinking that is not shown."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from schemas.limits import MAX_UNPACKED
from server.http.errors import invalid

SHOWN = "roseinfer"
"""The signature of thinking that is shown. Nobody checks it, but clients require one."""

_PREFIX = "roseinfer:"

_MAX_RATIO = 1032
"""Bytes that one byte of deflate's format stands for at most (zlib, technical details)."""


def signature_of(thinking: str) -> str:
    """The signature that stands for omitted thinking, so that the next request can repeat it."""
    return _PREFIX + urlsafe_b64encode(zlib.compress(thinking.encode(), 1)).decode()


class Unpacker:
    """Unpacks the signatures of one request, to MAX_UNPACKED bytes together."""

    def __init__(self) -> None:
        self._left = MAX_UNPACKED

    def thinking_in(self, signature: str, param: str) -> str:
        """The thinking that a signature carries. Signatures of other servers carry none.

        Raises InvalidRequest of ``param`` if they carry too much. A signature that cannot be
        unpacked counts with the most bytes that one of its length could hold.
        """
        if not signature.startswith(_PREFIX):
            return ""
        try:
            packed = urlsafe_b64decode(signature.removeprefix(_PREFIX))
            return self._unpacked(packed, param).decode()
        except (ValueError, zlib.error):
            return ""

    def _unpacked(self, packed: bytes, param: str) -> bytes:
        data = b""
        if self._left >= 0:
            try:
                data = zlib.decompressobj().decompress(packed, self._left + 1)  # 0: without limit
            except zlib.error:
                self._left -= min(len(packed) * _MAX_RATIO, self._left + 1)
                raise
            self._left -= len(data)
        if self._left < 0:
            raise invalid(
                param,
                f"'{param}': the signatures of a request carry at most {MAX_UNPACKED} bytes of "
                "thinking together.",
            )
        return data
