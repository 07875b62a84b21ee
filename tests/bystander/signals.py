"""SIGTERM in every state: the process exits with 0 in time and no answer ends in a lie."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compat_tests.support import sse
from compat_tests.support.api import CHAT, COMPLETIONS, Api, check_error, finish_reasons
from compat_tests.support.http import Clock, Connection, ConnectionEnded
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import eventually

DRAIN_SECONDS = 2.0
EXIT_SECONDS = 4.0
"""Seconds from the end of the drain to the end of the process, generous on a busy machine."""

STATES = ("idle", "loading", "prefill", "streaming", "stalled reader", "twice", "arriving")

ENDLESS = {"max_tokens": 1900, "ignore_eos": True}


def check_stop(start_server: Callable[..., ServerProcess], state: str) -> float:
    """Stop a server that is in this state; seconds from the signal to the exit."""
    server = start_server("--drain-timeout", str(DRAIN_SECONDS)).wait_listening()
    if state != "loading":
        server.wait_ready()
    setting = {
        "prefill": prefill,
        "streaming": streaming,
        "stalled reader": stalled,
        "twice": streaming,
        "arriving": arriving,
    }.get(state, nothing)
    with setting(Api(server)):
        server.signal(signal.SIGTERM)
        clock = Clock()
        if state == "twice":
            eventually(lambda: server.health()[1] == "draining", what="draining")
            server.signal(signal.SIGTERM)
        code = server.wait_exit(DRAIN_SECONDS + EXIT_SECONDS)
        seconds = clock.seconds
    server.close()
    assert code == 0, server.final_stderr
    assert "Traceback" not in server.final_stderr, server.final_stderr
    return seconds


@contextmanager
def nothing(_: Api) -> Iterator[None]:
    yield


@contextmanager
def prefill(api: Api) -> Iterator[None]:
    """Prompts of several steps are being computed."""
    with contextlib.ExitStack() as stack:
        for number in range(6):
            connection = stack.enter_context(api.server.connect())
            body = api.completion_body([80 + number] * 1900, max_tokens=20)
            connection.send("POST", COMPLETIONS, body)
        eventually(lambda: api.server.stats()["num_running"] > 0 or api.is_idle())
        yield


@contextmanager
def streaming(api: Api) -> Iterator[None]:
    """A stream is open; it ends with a finish, with an error event, or not at all."""
    with api.server.connect() as connection:
        connection.send("POST", CHAT, api.chat_body(stream=True, n=3, **ENDLESS))
        eventually(lambda: api.server.stats()["num_running"] == 3)
        yield
        check_ending(connection)


@contextmanager
def stalled(api: Api) -> Iterator[None]:
    with api.server.connect(receive_buffer=2048) as connection:
        connection.send("POST", CHAT, api.chat_body(stream=True, n=8, **ENDLESS))
        eventually(lambda: api.server.stats()["num_running"] == 8)
        yield


@contextmanager
def arriving(api: Api) -> Iterator[None]:
    """Eight clients send requests all the time, until nobody listens."""
    faults: list[str] = []
    has_begun = threading.Barrier(9)

    def client(number: int) -> None:
        is_first = True
        with contextlib.suppress(OSError, ConnectionEnded):  # the listener has closed
            while True:
                with api.server.connect() as connection:
                    body = api.completion_body([70 + number] * 900, max_tokens=5, ignore_eos=True)
                    connection.send("POST", COMPLETIONS, body | {"stream": number % 2 == 0})
                    if is_first:
                        is_first = False
                        has_begun.wait(10)
                    fault = ending_of(connection)
                    if fault:
                        faults.append(fault)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    has_begun.wait(10)
    yield
    for thread in threads:
        thread.join(10)
    assert not faults, faults


def ending_of(connection: Connection) -> str:
    """What is wrong with an answer; empty if it is whole, an honest error, or cut."""
    reply = connection.read_reply()
    if reply.status == 503:
        check_error(reply)
        return ""
    if reply.status != 200:
        return f"{reply.status}: {reply.text[:200]}"
    if (reply.header("content-type") or "").startswith("text/event-stream"):
        chunks = sse.payloads(reply.body)
        return "" if "error" in chunks[-1] or finish_reasons(chunks) else "a stream without an end"
    return "" if reply.json["choices"] else "no choices"


def check_ending(connection: Connection) -> None:
    with contextlib.suppress(OSError, ConnectionEnded):
        body = connection.read_reply().body
        chunks = sse.payloads(body)
        assert "error" in chunks[-1] or finish_reasons(chunks), chunks[-1]
