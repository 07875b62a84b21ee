"""EventStreamParser: parses server-sent events from pieces. Sans-IO."""

from __future__ import annotations

_LF = b"\n"


class EventStreamParser:
    """Turns the bytes of a ``text/event-stream`` into the data of its events.

    Comments and fields other than ``data`` are skipped. An event without a blank line after it
    is dropped (HTML standard, section "Server-sent events").
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that these bytes complete. They may be cut anywhere."""
        lines = (self._rest + chunk).splitlines(keepends=True)
        # The last line is complete only if it ends with LF: after CR, LF may still follow.
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
