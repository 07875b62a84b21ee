"""What requests hold after they were read."""

from __future__ import annotations

import contextlib

from compat_tests.support.api import Json
from compat_tests.support.http import Connection, ConnectionEnded, encode
from compat_tests.support.waiting import pause
from schemas.limits import MAX_CONTAINERS
from tests.bystander.arena import CHAT, Arena, attack

HOLDING = 3.0
"""Seconds for which all connections stay open after the last was sent."""


def hold(arena: Arena, requests: list[tuple[str, bytes]]) -> None:
    """Send every request on a connection of its own, read the first bytes only, leave late."""
    with contextlib.ExitStack() as stack:

        def send(request: tuple[str, bytes]) -> None:
            arena.sent()
            try:
                connection = stack.enter_context(arena.connect(receive_buffer=4096))
                connection.send("POST", request[0], request[1])
                arena.note(status_of_first_bytes(connection))
            except (OSError, ConnectionEnded):
                arena.note(0)

        arena.together(send, requests, width=32)
        pause(HOLDING)


def status_of_first_bytes(connection: Connection) -> int:
    head = connection.socket.recv(12)
    return int(head[9:12]) if len(head) == 12 else 0


def endless(fields: Json) -> bytes:
    return encode({"max_tokens": 1900, "ignore_eos": True, "stream": True} | fields)


@attack("100 requests with as many small objects as a body may have", may_refuse=True)
def small_objects(arena: Arena) -> None:
    """They take thirty times the bytes of their JSON."""
    objects = b",".join([b'{"a":1}'] * (MAX_CONTAINERS - 100))
    tool = b'{"type":"function","function":{"name":"f","parameters":{"a":[' + objects + b"]}}}"
    head = endless({"messages": [{"role": "user", "content": "hi"}]})[:-1]
    body = head + b',"tool_choice":"none","tools":[' + tool + b"]}"
    hold(arena, [(CHAT, body)] * arena.amount(100))
