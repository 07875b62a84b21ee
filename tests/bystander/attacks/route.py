"""What a router has to bear: clients of many models, and servers that die, stall or flood."""

from __future__ import annotations

import contextlib
from typing import Any

from compat_tests.support.api import Json
from compat_tests.support.http import Clock, Connection, ConnectionEnded, encode
from compat_tests.support.waiting import PATIENCE, pause
from tests.bystander.arena import CHAT, Arena, attack
from tests.bystander.routed import DYING, FLOODING, HANGING, RENAMED, TWINS

THROUGH = (
    "bodies above the limit, declared and not",
    "30 MB of spaces, of quotes, of backslashes, of one key again and again",
    "one header without end",
    "headers without end, one line each",
    "4,000 header lines, and headers of 60 KB",
    "almost HTTP: framing that says two things, other protocols",
    "half-sent requests on 200 connections",
    "headers and bodies that drip, 50 connections",
    "connections opened and closed, 2,000 times",
    "streams that nobody reads, n=8",
    "a reader of one byte at a time",
    "pipelined requests, client leaves",
    "pipelined requests without end",
    "uploads that stop in the middle, 32 MB declared",
    "500 streams that leave at once",
    "errors without pause: 2,000 refused requests",
    "two 8 MB prompts whose senders leave",
    "chat_template_kwargs with 18 MB of []",
    "n=128 streamed, senders leave",
)
"""Attacks on a server that are tried through a router too."""

QUICK_THROUGH = (
    "half-sent requests on 200 connections",
    "streams that nobody reads, n=8",
    "uploads that stop in the middle, 32 MB declared",
    "n=128 streamed, senders leave",
)


def ask(model: str, **fields: Any) -> Json:
    """A request of a scripted server."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}]} | fields


@attack("servers that die before and in the middle of an answer", kind="route", is_quick=True)
def dying(arena: Arena) -> None:
    """A server that dies again and again gets a pause, in which requests are answered 503."""
    arena.may_fail = True
    requests = (ask(DYING, stream=True, n=5, die_after=2), ask(DYING, die_after=-1))

    def post(body: Json) -> None:
        status, data = arena.post(CHAT, body)
        if status == 200 and (b'"error"' not in data or b"[DONE]" in data):
            arena.fault(f"a stream that was cut says {data[-200:]!r}")

    for number in range(arena.amount(20, least=2)):
        post(requests[number % 2])
    for expected, body in zip((200, 502), requests, strict=True):
        clock = Clock()
        while not arena.statuses[expected] and clock.seconds < PATIENCE:
            pause(0.5)
            post(body)
        if not arena.statuses[expected]:
            arena.fault(f"no {expected} of {dict(arena.statuses)}")


@attack("servers that never answer, and that stop in the middle", kind="route", is_quick=True)
def hanging(arena: Arena) -> None:
    arena.may_fail = True
    bodies = (ask(HANGING, hang=True), ask(HANGING, stream=True, n=5, pause_after=2))

    def leave(number: int) -> None:
        arena.leave(CHAT, bodies[number % 2], after=0.01 * (number % 30), reset=number % 3 == 0)

    arena.together(leave, range(arena.amount(200)), width=32)
    if arena.size == 1:  # they are waited for
        arena.together(lambda body: arena.post(CHAT, body, timeout=60), bodies)
    running = arena.server.stats()["inside"][HANGING]
    if running:
        pause(0.5)
        running = arena.server.stats()["inside"][HANGING]
    if running:
        arena.fault(f"{running} requests are still open at a server whose clients have left")


@attack("streams of gigabytes that nobody reads", kind="route", is_quick=True)
def flooding(arena: Arena) -> None:
    body = ask(FLOODING, stream=True, n=100_000, size=20_000)
    with contextlib.ExitStack() as stack:
        for _ in range(arena.amount(32, least=4)):
            arena.sent()
            connection = stack.enter_context(arena.connect(receive_buffer=2048))
            connection.send("POST", CHAT, body)
        pause(max(4 * arena.size, 1))


@attack("streams of megabytes that are read at full speed", kind="route")
def fast(arena: Arena) -> None:
    body = ask(FLOODING, stream=True, n=arena.amount(3000), size=20_000)
    arena.together(lambda _: arena.post(CHAT, body), range(4))


@attack("bodies that name a model in 10,000 places, or late", kind="route", is_quick=True)
def names(arena: Arena) -> None:
    """RENAMED's scripted server decodes what it gets, in memory of its own: it gets less."""
    for model, size in ((RENAMED, arena.amount(1_000_000)), (TWINS, arena.amount(30_000_000))):
        inner = b'{"model":"' + model.encode() + b'"}'
        lists = {
            "many": b"[" + b",".join([inner] * (size // (len(inner) + 1))) + b"]",
            "spaces": b'[{"model"' + b" " * (size - 100) + b':"' + model.encode() + b'"}]',
            "empty": b"[" + b"[]," * (size // 3) + b"[]]",
            "numbers": b"[" + b"1," * (size // 2) + b"1]",
            "keys": b"{" + b'"model":1,' * (size // 10) + b'"model":2}',
        }
        for value in lists.values():
            end = b',"model":"' + model.encode() + b'"}'
            arena.post(CHAT, b'{"metadata":' + value + end, timeout=60)
            arena.post(CHAT, b'{"messages":' + value + end, timeout=60)


@attack("models that are not there, and requests that are none, 2,000", kind="route")
def unknown(arena: Arena) -> None:
    bodies = [
        encode(ask("no-such-model")),
        encode(ask("x" * 100_000)),
        encode({"model": 5}),
        b"{",
        encode(ask(TWINS)),
    ]
    arena.together(
        lambda number: arena.post(CHAT, bodies[number % len(bodies)]), range(arena.amount(2000))
    )


@attack(
    "burst of 1,000 tiny requests through a router", kind="route", may_refuse=True, is_flood=True
)
def burst(arena: Arena) -> None:
    body = arena.chat("hi", max_tokens=1)
    arena.all_at_once([arena.whole(CHAT, body)] * arena.amount(1000), wait=60)
    if arena.statuses[0]:
        arena.fault(f"{arena.statuses[0]} requests were never answered")


@attack("1,000 silent sockets in front of a router", kind="route", is_quick=True, is_flood=True)
def silent(arena: Arena) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(arena.amount(1000)):
            arena.sent()
            with contextlib.suppress(OSError):
                stack.enter_context(arena.connect(timeout=5))
        pause(max(3 * arena.size, 0.5))


@attack("streams whose senders leave, through a router", kind="route", is_quick=True)
def left(arena: Arena) -> None:
    """Each frees its sequence in the server behind the router."""
    body = arena.chat(max_tokens=1500, ignore_eos=True, stream=True)

    def leave(number: int) -> None:
        with arena.connect() as connection, contextlib.suppress(OSError, ConnectionEnded):
            arena.sent()
            read_some(connection, body, number % 8)

    arena.together(leave, range(arena.amount(200)), width=16)


def read_some(connection: Connection, body: Json, num_pieces: int) -> None:
    """Leave after so many pieces of the answer."""
    reply = connection.request("POST", CHAT, body)
    for number, _ in enumerate(reply.pieces()):
        if number >= num_pieces:
            return
