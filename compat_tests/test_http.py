"""Rules of HTTP and of JSON on raw sockets: at the server, and through a router."""

import gzip
import json
import zlib
from collections.abc import Iterator

import pytest

from compat_tests.support.api import CHAT, user
from compat_tests.support.http import Connection
from compat_tests.support.process import ServerProcess
from tests.support.routers import Router

CHUNKED = "transfer-encoding: chunked\r\n"
SIZED = "content-length: 10\r\n"
EARLY = [
    ("GET", "/health", "", 200),
    ("HEAD", "/health", "", 200),
    ("OPTIONS", CHAT, "", 204),
    ("GET", CHAT, "", 405),
    ("DELETE", CHAT, "", 405),
    ("POST", "/no/such/route", "", 404),
    ("POST", CHAT, "host: evil.example\r\n", 403),
    ("POST", CHAT, "x: " + "y" * 70_000 + "\r\n", 431),
]
OF_ROUTER = {405: 404, 404: 415}
"""It has one route for all paths, which looks at the type first."""


@pytest.fixture(scope="module")
def router(server: ServerProcess, tmp_path_factory) -> Iterator[Router]:
    config = {"models": {"roseinfer-tiny": {"url": server.url}}}
    running = Router(tmp_path_factory.mktemp("router"), config)
    yield running.wait_ready()
    running.stop()


@pytest.fixture(params=["server", "router"])
def front(request, server, router) -> ServerProcess:
    """Either of the two programs that speak HTTP."""
    return server if request.param == "server" else router


def begin(connection: Connection, method: str, path: str, headers: str) -> None:
    """Send a head, and nothing of its body."""
    host = "" if "host:" in headers else "host: localhost\r\n"
    connection.last_method = method
    connection.send_bytes(f"{method} {path} HTTP/1.1\r\n{host}{headers}\r\n".encode())


@pytest.mark.parametrize("framing", [SIZED, CHUNKED, "expect: 100-continue\r\n" + SIZED])
@pytest.mark.parametrize(("method", "path", "headers", "status"), EARLY)
def test_an_early_answer_says_that_it_is_the_last(front, method, path, headers, status, framing):
    """Not one of them leaves a connection that ends at the next request without a word."""
    if isinstance(front, Router):
        status = OF_ROUTER.get(status, status)
    with front.connect() as connection:
        begin(connection, method, path, headers + framing)
        reply = connection.read_reply()
        assert reply.body is not None
        assert (reply.status, reply.header("connection")) == (status, "close")
        connection.send_bytes(b"0123456789")  # no reset
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("GET", "/v1/models")])
def test_a_missing_key_is_an_early_answer(guarded_server, method, path):
    with guarded_server.connect() as connection:
        begin(connection, method, path, SIZED)
        reply = connection.read_reply()
        assert reply.body is not None
        assert (reply.status, reply.header("connection")) == (401, "close")
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("framing", [SIZED, CHUNKED])
def test_after_a_whole_body_the_connection_goes_on(front, framing):
    body = b"0123456789" if framing == SIZED else b"a\r\n0123456789\r\n0\r\n\r\n"
    with front.connect() as connection:
        for method, path, status in [("GET", "/health", 200), ("DELETE", "/no/such/route", 404)]:
            head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n".encode()
            connection.send_bytes(head + body)
            reply = connection.read_reply()
            assert reply.body is not None
            assert (reply.status, reply.header("connection")) == (status, None)
        assert connection.request("GET", "/health").status == 200


def test_http_1_0_streams_without_chunks(front):
    body = json.dumps({"messages": user("Hello!"), "stream": True, "max_tokens": 4, "seed": 1})
    head = f"POST {CHAT} HTTP/1.0\r\ncontent-type: application/json\r\n"
    with front.connect() as connection:
        connection.send_bytes(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        data = b"".join(connection.read_to_end())
    headers, _, events = data.partition(b"\r\n\r\n")
    assert b" 200 " in headers.splitlines()[0]
    assert b"transfer-encoding" not in headers.lower()
    assert all(line[:6] in {b"", b"data: "} for line in events.split(b"\n"))
    assert events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("hosts", ["", "host: localhost\r\nhost: localhost\r\n"])
def test_a_request_without_one_host_is_refused(front, hosts):
    with front.connect() as connection:
        connection.send_bytes(f"GET /v1/models HTTP/1.1\r\n{hosts}\r\n".encode())
        reply = connection.read_reply()
        assert "Host" in reply.json["error"]["message"]
        assert (reply.status, reply.header("connection")) == (400, "close")
        assert connection.is_closed_by_peer()


def test_the_rest_of_a_body_is_never_taken_for_a_request(front):
    rest = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with front.connect() as connection:
        begin(connection, "GET", "/no/such/route", f"content-length: {len(rest)}\r\n")
        assert connection.read_reply().body
        connection.send_bytes(rest)
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/api/chat"])
@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("GZip, identity", gzip.compress),
        ("deflate", zlib.compress),
        (None, b"\xef\xbb\xbf".__add__),
    ],
)
def test_a_body_may_be_coded(front, path, coding, encode):
    asked = {"messages": user("Hello!" * 50), "max_tokens": 2, "stream": False}
    with front.connect() as connection:
        body = encode(json.dumps(asked).encode())
        reply = connection.request("POST", path, body, {"content-encoding": coding})
        assert (reply.status, reply.json["model"]) == (200, "roseinfer-tiny")
        assert connection.request("GET", "/health").status == 200


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "deflate, gzip", "x-unknown"])
def test_another_coding_is_refused_by_name(front, coding):
    with front.connect() as connection:
        reply = connection.request("POST", CHAT, b"{}", {"content-encoding": coding})
        assert (reply.status, reply.header("accept-encoding")) == (415, "gzip, deflate")
        assert "Content-Encoding" in reply.json["error"]["message"]
