"""A client that costs little: it sends one request per connection and only counts events."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

PROMPT = "Tell me a story about a fox."
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class Reader(asyncio.Protocol):
    """Sends one request and reads its stream to the end."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.num_events = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.num_events += data.count(b"data: ")  # writes are small, so no frame is split here
        self._tail = (self._tail + data)[-32:]
        if b"[DONE]" in self._tail:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and b"[DONE]" in self._tail:
            self.done.set_result(None)
        else:
            self.done.set_exception(error or EOFError(self._tail))


async def read_streams(url: str, request: bytes, num_streams: int) -> int:
    """Open all streams at once and read them; returns the number of events."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda: Reader(request), host, int(port))
        for _ in range(num_streams)
    ]
    await asyncio.gather(*(reader.done for _, reader in pairs))
    return sum(reader.num_events for _, reader in pairs)


def request_bytes(endpoint: str, num_tokens: int) -> bytes:
    body: dict[str, Any] = {"stream": True, "max_tokens": num_tokens, "ignore_eos": True}
    if endpoint == "chat":
        body["messages"] = [{"role": "user", "content": PROMPT}]
    else:
        body["prompt"] = PROMPT
    data = json.dumps(body).encode()
    head = (
        f"POST {ROUTES[endpoint]} HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
