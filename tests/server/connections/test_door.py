"""Requests that are answered before their connection is opened."""

import json
import socket

import pytest

from server.connections.door import MAX_SIZE, Door
from server.connections.limits import ConnectionLimits
from server.connections.refusal import raw_response
from server.errors import APIError

BODY = b'{"model": "m"}'
HEAD = b"POST /a?b HTTP/1.1\r\nHost: h\r\nX-Y: Z\r\nContent-Length: %d\r\n" % len(BODY)
WHOLE = HEAD + b"\r\n" + BODY


class Guard:
    """Turns away what it is asked about, or nothing."""

    def __init__(self):
        self.asked = []
        self.is_full = True
        self.answers = True

    def turn_away(self, *head):
        self.asked.append(head)
        return self.answer if self.answers else None

    @staticmethod
    def answer(*, is_last):
        return raw_response(APIError(429, "Not now."), {}, is_last=is_last)


@pytest.fixture
def guard():
    return Guard()


@pytest.fixture
def door(guard):
    return Door(guard.turn_away, ConnectionLimits(max_headers=10), lambda: guard.is_full)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(0)
    with ours, theirs:
        yield ours, theirs


def test_a_whole_request_is_answered(door, guard, pair):
    ours, theirs = pair
    theirs.send(WHOLE)
    assert door.try_answer(ours)
    head, body = theirs.recv(65536).split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"connection: close" in head.split(b"\r\n")
    assert json.loads(body)["error"]["message"] == "Not now."
    headers = [(b"host", b"h"), (b"x-y", b"Z"), (b"content-length", b"14")]
    assert guard.asked == [(b"POST", b"/a?b", headers, None)]


def test_with_chunks_and_trailers(door, guard, pair):
    pair[1].send(
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"
    )
    assert door.try_answer(pair[0])
    assert guard.asked[0][2] == [(b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:9],
        WHOLE[:-1],
        WHOLE + b"P",
        WHOLE + WHOLE,
        HEAD + b"Expect: 100-continue\r\n\r\n" + BODY,
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\x16\x03\x01 no HTTP at all",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 11 + b"\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (2 * MAX_SIZE) + b"a" * (2 * MAX_SIZE),
    ],
)
def test_what_is_not_one_whole_plain_request_is_left_as_it_is(door, guard, pair, data):
    ours, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_SIZE)
    if data:
        theirs.send(data)
    assert not door.try_answer(ours)
    assert guard.asked == []
    if data:
        assert ours.recv(4 * MAX_SIZE) == data


def test_what_is_not_turned_away_is_left_as_it_is(door, guard, pair):
    guard.answers = False
    pair[1].send(WHOLE)
    assert not door.try_answer(pair[0])
    assert pair[0].recv(1000) == WHOLE


def test_while_there_is_room_it_looks_at_nothing(door, guard, pair):
    guard.is_full = False
    pair[1].send(WHOLE)
    assert not door.try_answer(pair[0])
    assert guard.asked == []


def test_one_whose_client_has_left_is_no_fault(door, pair):
    pair[1].send(WHOLE)
    pair[1].close()
    assert door.try_answer(pair[0])


def test_the_client_has_its_address(door, guard):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        ours, address = listener.accept()
        client.send(WHOLE)
        with ours:
            assert ours.recv(1, socket.MSG_PEEK) == WHOLE[:1], "it has come"
            assert door.try_answer(ours)
        assert guard.asked[0][3] == address
