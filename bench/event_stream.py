"""Server-sent events, taken apart as they come in. Sans-IO."""

from __future__ import annotations

_LF = b"\n"


class EventStreamParser:
    """Bytes of a ``text/event-stream`` in, the data of its events out.

    ``feed`` gives the data of every event that its bytes complete; what is not complete stays
    for the next call. Comments and fields other than ``data`` are skipped, and an event that is
    never ended by a blank line is none (HTML standard, server-sent events).
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take in bytes, cut anywhere."""
        lines = (self._rest + chunk).splitlines(keepends=True)
        # A line that ends in CR may go on with LF: only LF ends the last one for certain.
        self._rest = lines.pop() if lines and not lines[-1].endswith(_LF) else b""
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                value = line[5:].rstrip(b"\r\n")
                self._data.append(value.removeprefix(b" "))
            elif self._data and not line.rstrip(b"\r\n"):
                events.append(_LF.join(self._data))
                self._data.clear()
        return events
