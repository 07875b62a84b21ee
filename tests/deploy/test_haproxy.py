"""The HAProxy recipe in front of two servers: what a drain and a crash cost clients."""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import openai
import pytest

from benchmarks.haproxy import CONFIG, find_haproxy, haproxy
from compat_tests.support import sse
from compat_tests.support.http import Connection, ConnectionEnded
from compat_tests.support.process import ServerProcess, loopback_only
from compat_tests.support.waiting import eventually, pause

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(find_haproxy() is None, reason="needs haproxy"),
]

CHAT = "/v1/chat/completions"
NUM_STREAMS = 12
LONG = 1500
"""Tokens of a stream that outlasts what happens to its server."""


def chat(num_tokens: int, *, stream: bool) -> dict:
    message = {"role": "user", "content": "Tell me a story."}
    return {
        "messages": [message],
        "stream": stream,
        "max_tokens": num_tokens,
        "ignore_eos": True,
    }


@dataclass
class Stream:
    """A request through the proxy, read on a thread of its own."""

    port: int
    num_tokens: int = LONG
    headers: dict[str, str | None] = field(default_factory=dict)
    body: bytes = b""
    is_cut: bool = False

    def __post_init__(self) -> None:
        self.began = threading.Event()

    def read(self) -> Stream:
        with Connection("127.0.0.1", self.port) as connection:
            body = chat(self.num_tokens, stream=True)
            reply = connection.request("POST", CHAT, body, self.headers)
            assert reply.status == 200
            try:
                for piece in reply.pieces():
                    self.body += piece
                    self.began.set()
            except (ConnectionEnded, ConnectionError):
                self.is_cut = True
        return self

    @property
    def finish_reasons(self) -> list[str]:
        chunks = sse.payloads(self.body)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


@dataclass
class Pair:
    """Two servers and HAProxy in front of them."""

    servers: list[ServerProcess]
    port: int

    def ask(self, headers: dict[str, str | None] | None = None) -> int:
        """The status of a short request."""
        with Connection("127.0.0.1", self.port) as connection:
            reply = connection.request("POST", CHAT, chat(3, stream=False), headers)
            assert reply.body
            return reply.status

    def num_running(self) -> list[int]:
        return [server.stats()["num_running"] for server in self.servers]


@contextlib.contextmanager
def two_servers(folder):
    flags = ("--drain-timeout", "120", "--forwarded-allow-ips", "127.0.0.1")
    with loopback_only():
        servers = [ServerProcess(*flags) for _ in range(2)]
        try:
            for server in servers:
                server.wait_ready()
            with haproxy([server.url for server in servers], folder) as proxy:
                proxy.wait_ready(30)
                yield Pair(servers, int(proxy.url.rpartition(":")[2]))
        finally:
            for server in servers:
                server.close()


@pytest.fixture
def mortal_pair(tmp_path):
    """Servers that a test may end."""
    with two_servers(tmp_path) as pair:
        yield pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with two_servers(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@contextlib.contextmanager
def streaming(pair: Pair):
    """Streams on both servers, all of which have begun. Gives their futures."""
    streams = [Stream(pair.port) for _ in range(NUM_STREAMS)]
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        futures = [pool.submit(stream.read) for stream in streams]
        assert all(stream.began.wait(60) for stream in streams)
        yield futures


def statuses_until_down(pair: Pair) -> Counter[int]:
    """Statuses of short requests, one after the other, while HAProxy finds out, and after."""
    statuses: Counter[int] = Counter()
    for _ in range(60):
        statuses[pair.ask()] += 1
        pause(0.05)
    return statuses


def test_haproxy_accepts_the_recipe_without_a_warning():
    command = [find_haproxy(), "-c", "-V", "-f", CONFIG]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0
    assert "WARNING" not in checked.stderr
    assert "ALERT" not in checked.stderr


def check_error_without_servers(pair: Pair) -> None:
    """What the SDK gets when the last server is gone."""
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{pair.port}/v1", api_key="none", max_retries=0
    )
    for _ in itertools.repeat(None, 3):  # before and after HAProxy has noticed
        with pytest.raises(openai.InternalServerError) as raised:
            client.chat.completions.create(
                model="roseinfer-tiny", messages=[{"role": "user", "content": "Hello!"}]
            )
        assert raised.value.status_code in {502, 503}
        assert raised.value.body["message"]
        assert raised.value.response.headers["retry-after"] == "1"
        pause(1.2)
    client.close()


def test_a_drained_server_loses_no_stream_and_no_request(mortal_pair):
    with streaming(mortal_pair) as futures:
        assert min(mortal_pair.num_running()) > 0
        drained = mortal_pair.servers[0]
        drained.signal(signal.SIGTERM)
        assert statuses_until_down(mortal_pair) == {200: 60}
        streams = [future.result(120) for future in futures]
    assert not any(stream.is_cut for stream in streams)
    assert [stream.finish_reasons for stream in streams] == [["length"]] * NUM_STREAMS
    assert drained.wait_exit(60) == 0
    assert mortal_pair.ask() == 200


def test_a_killed_server_loses_its_own_streams_only(mortal_pair):
    with streaming(mortal_pair) as futures:
        lost, kept = mortal_pair.num_running()
        assert lost + kept == NUM_STREAMS
        assert min(lost, kept) > 0
        mortal_pair.servers[0].signal(signal.SIGKILL)
        assert statuses_until_down(mortal_pair) == {200: 60}
        streams = [future.result(120) for future in futures]
    cut = [stream for stream in streams if stream.is_cut]
    assert len(cut) == lost
    assert not any(sse.DONE in stream.body for stream in cut)  # never a lie about its end
    whole = [stream for stream in streams if not stream.is_cut]
    assert [stream.finish_reasons for stream in whole] == [["length"]] * kept
    mortal_pair.servers[1].signal(signal.SIGKILL)
    check_error_without_servers(mortal_pair)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_request_on_the_server(pair, stream):
    with Connection("127.0.0.1", pair.port) as connection:
        connection.send("POST", CHAT, chat(1900, stream=stream))
        eventually(lambda: sum(pair.num_running()) == 1)
    eventually(lambda: sum(pair.num_running()) == 0, timeout=2)


def requests_of(server: ServerProcess) -> int:
    return server.stats()["num_prompt_tokens"]


def test_a_session_stays_on_a_server_and_leaves_it_when_that_is_full(pair):
    for session in ("a", "b", "c"):
        before = [requests_of(server) for server in pair.servers]
        assert [pair.ask({"x-session-id": session}) for _ in range(6)] == [200] * 6
        after = [requests_of(server) for server in pair.servers]
        used = [new > old for old, new in zip(before, after, strict=True)]
        assert sorted(used) == [False, True]
    streams = [Stream(pair.port, headers={"x-session-id": "hot"}) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(stream.read) for stream in streams]
        assert all(stream.began.wait(60) for stream in streams)
        assert min(pair.num_running()) >= 1  # 1.5 times the mean of 4 is 6
        assert all(future.result(120).finish_reasons == ["length"] for future in futures)


def test_a_flood_of_connections_of_one_address_is_held_off(pair):
    """Its first 200 connections stay, the others are closed, and other clients are served."""
    with contextlib.ExitStack() as stack:
        flood = []
        for _ in range(300):
            with contextlib.suppress(ConnectionResetError):  # closed before connect() has returned
                connection = Connection("127.0.0.1", pair.port, source="127.0.0.2")
                flood.append(stack.enter_context(connection))
        eventually(lambda: num_open(flood) == 200)
        assert pair.ask() == 200
        assert num_open(flood) == 200


def num_open(connections: list[Connection]) -> int:
    return sum(not is_closed(connection) for connection in connections)


def is_closed(connection: Connection) -> bool:
    """Whether the other side has ended a connection that has sent nothing. Does not wait."""
    readable, _, _ = select.select([connection.socket], [], [], 0)
    return bool(readable)


def test_a_flood_of_requests_of_one_address_is_answered_429(pair):
    with Connection("127.0.0.1", pair.port, source="127.0.0.3") as connection:
        statuses: Counter[int] = Counter()
        while not statuses[429] and statuses.total() < 1200:
            reply = connection.request("GET", "/health")
            body = reply.body
            statuses[reply.status] += 1
    assert statuses == {200: 1000, 429: 1}
    assert reply.header("retry-after") == "10"
    assert b"rate_limit_exceeded" in body
    assert pair.ask() == 200
