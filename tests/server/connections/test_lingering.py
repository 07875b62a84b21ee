"""Connections that are ended after an answer. TCP, as with a real client; scripted time."""

import select
import socket
import struct

import anyio
import anyio.lowlevel
import pytest

from server.connections.lingering import MAX_DRAINED, PIECE, Lingering
from tests.support.engines import DEADLINE

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 429 Too Many Requests\r\n\r\n"
SECONDS = 5.0


@pytest.fixture
async def lingering(loop):
    lingering = Lingering(loop, SECONDS)
    yield lingering
    for _ in range(2):
        lingering.close()
    assert len(lingering) == 0
    assert loop.num_timers == 0


@pytest.fixture
def pair():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        ours, _ = listener.accept()
        ours.setblocking(False)
        client.settimeout(DEADLINE)
        with ours:
            yield ours, client


def answer(lingering, ours):
    ours.send(ANSWER)
    lingering.end(ours)


async def until(probe):
    with anyio.fail_after(DEADLINE):
        while not probe():
            await anyio.lowlevel.checkpoint()


async def test_one_that_sends_late_reads_its_answer_and_the_end(lingering, pair):
    """A closed socket would answer the first late byte with a reset, and fail the second send."""
    ours, client = pair
    client.send(b"POST / HTTP/1.1\r\n")
    answer(lingering, ours)
    for _ in range(20):
        client.sendall(b"late" * 100)
        await anyio.lowlevel.checkpoint()
    assert client.recv(65536) == ANSWER
    assert client.recv(1) == b""
    assert ours.fileno() != -1
    client.close()
    await until(lambda: not len(lingering))
    assert ours.fileno() == -1


async def test_one_that_has_sent_its_end_is_closed_at_once(lingering, pair):
    ours, client = pair
    client.send(b"POST / HTTP/1.1\r\n\r\n")
    client.shutdown(socket.SHUT_WR)
    ours.setblocking(True)
    ours.recv(100)
    assert ours.recv(100, socket.MSG_PEEK) == b"", "the end has come"
    ours.setblocking(False)
    answer(lingering, ours)
    assert (len(lingering), ours.fileno()) == (0, -1)
    assert client.recv(65536) == ANSWER


async def test_one_that_has_reset_is_no_fault(lingering, pair):
    ours, client = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    lingering.end(ours)
    await until(lambda: not len(lingering))
    assert ours.fileno() == -1


async def test_one_that_resets_later_is_no_fault(lingering, pair):
    ours, client = pair
    answer(lingering, ours)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await until(lambda: not len(lingering))
    assert ours.fileno() == -1


async def test_a_large_body_that_was_sent_before_the_answer(lingering, pair):
    ours, client = pair
    client.setblocking(False)
    assert client.send(b"x" * 150_000) > PIECE
    answer(lingering, ours)
    await until(lambda: not select.select([ours], [], [], 0)[0])
    client.settimeout(DEADLINE)
    assert client.recv(65536) == ANSWER
    assert client.recv(1) == b""


async def test_one_that_stays_is_closed_in_time(lingering, pair, loop):
    ours, client = pair
    answer(lingering, ours)
    loop.advance(SECONDS - 0.1)
    assert len(lingering) == 1
    loop.advance(0.2)
    assert (len(lingering), ours.fileno()) == (0, -1)
    assert client.recv(65536) == ANSWER


async def test_one_that_sends_without_end_is_closed(lingering, pair):
    ours, client = pair
    answer(lingering, ours)
    client.setblocking(False)
    num_sent = 0
    with anyio.fail_after(DEADLINE):
        while len(lingering):
            try:
                num_sent += client.send(b"x" * 4096)
            except BlockingIOError:
                pass
            except ConnectionError:
                break
            await anyio.lowlevel.checkpoint()
    assert ours.fileno() == -1
    assert num_sent >= MAX_DRAINED


async def test_the_oldest_makes_room(lingering, loop):
    pairs = [socket.socketpair() for _ in range(3)]
    for ours, _ in pairs:
        ours.setblocking(False)
        lingering.end(ours)
        loop.advance(1)
    assert lingering.end_oldest()
    assert [ours.fileno() == -1 for ours, _ in pairs] == [True, False, False]
    loop.advance(SECONDS - 2)
    assert [ours.fileno() == -1 for ours, _ in pairs] == [True, True, False]
    loop.advance(1)
    assert not lingering.end_oldest()
    for _, theirs in pairs:
        theirs.close()
