"""Requests that arrive together are parsed a few in each turn of the loop, probes before them."""

import asyncio
from itertools import pairwise

import anyio.lowlevel
import pytest

from server.connections import heads as module
from server.connections.heads import PER_TURN
from server.connections.probes import PROBES

pytestmark = pytest.mark.anyio

POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
PROBE = b"GET /health HTTP/1.1\r\n"


class Held:
    """A connection that says in ``begun`` when its request is parsed."""

    def __init__(self, name, begun):
        self.name = name
        self._begun = begun

    def begin_held(self):
        self._begun.append(self.name)


@pytest.fixture
def begun():
    return []


@pytest.fixture
def arrive(heads, begun):
    """Bytes of a request arrive; it begins now or waits."""

    def arrive(name, client="10.0.0.1", data=POST):
        held = Held(name, begun)
        if heads.may_begin(data):
            held.begin_held()
        else:
            heads.wait((client, 5), held)
        return held

    return arrive


async def turns_until(is_true):
    for number in range(1000):
        if is_true():
            return number
        await anyio.lowlevel.checkpoint()
    raise AssertionError


async def test_no_turn_parses_more_than_a_few(arrive, begun, heads):
    """A turn of the loop in which 200 connections have bytes."""
    for number in range(200):
        arrive(number)
    assert (len(begun), len(heads)) == (PER_TURN, 200 - PER_TURN)
    counts = [len(begun)]
    while len(begun) < 200:
        await anyio.lowlevel.checkpoint()
        counts.append(len(begun))
    assert max(after - before for before, after in pairwise(counts)) <= PER_TURN
    assert begun == list(range(200))


async def test_those_that_come_later_do_not_pass(arrive, begun):
    for number in range(2 * PER_TURN):
        arrive(number)
    await anyio.lowlevel.checkpoint()
    for number in range(2 * PER_TURN, 4 * PER_TURN):
        arrive(number)
    await turns_until(lambda: len(begun) == 4 * PER_TURN)
    assert begun == list(range(4 * PER_TURN))


@pytest.mark.parametrize("path", sorted(PROBES))
@pytest.mark.parametrize("start", ["GET {} HTTP/1.1", "HEAD {} HTTP/1.1", "GET {}?x=1 HTTP/1.1"])
async def test_a_probe_passes_all_others(arrive, begun, path, start):
    for number in range(200):
        arrive(number)
    arrive("probe", data=start.format(path).encode())
    assert begun[-1] == "probe"


@pytest.mark.parametrize(
    "data", [b"POST /health HTTP/1.1", b"GET /healthy HTTP/1.1", b"GET /", b"GET /v1/models "]
)
async def test_what_is_no_probe_waits(arrive, begun, data):
    for number in range(PER_TURN):
        arrive(number)
    arrive("other", data=data)
    assert "other" not in begun
    await turns_until(lambda: begun[-1] == "other")


async def test_a_flood_of_probes_waits_too(arrive, begun):
    for number in range(200):
        arrive(number, data=PROBE)
    assert len(begun) == 2 * PER_TURN
    await turns_until(lambda: len(begun) == 200)


async def test_an_address_with_one_request_passes_one_with_many(arrive, begun):
    for number in range(200):
        arrive(number, client="10.0.0.2")
    arrive("one", client="10.0.0.3")
    await turns_until(lambda: "one" in begun)
    assert len(begun) <= 3 * PER_TURN


async def test_one_that_has_ended_is_forgotten(arrive, begun, heads):
    held = [arrive(number) for number in range(PER_TURN + 2)]
    for _ in range(2):
        heads.discard(held[-1])
    await turns_until(lambda: not heads)
    assert begun == list(range(PER_TURN + 1))


# In connections


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(module, "PER_TURN", 2)


async def test_connections_hand_in_their_requests(connect, app, heads, few):
    """Eight send at once, and then a probe: it is the first that the application gets."""
    clients = [await connect() for _ in range(9)]
    for number, client in enumerate(clients[:8]):
        client._socket.send(b"POST /%d HTTP/1.1\r\ncontent-length: 1\r\n\r\na" % number)
    clients[8]._socket.send(b"GET /health HTTP/1.1\r\n\r\n")
    counts = [0]
    while len(app.scopes) < 9:
        await anyio.lowlevel.checkpoint()
        counts.append(len(app.scopes))
    assert max(after - before for before, after in pairwise(counts)) <= 2 + 1
    paths = [scope["path"] for scope in app.scopes]
    assert sorted(paths) == sorted([*(f"/{number}" for number in range(8)), "/health"])
    assert paths.index("/health") <= 2
    for client in clients:
        assert (await client.reply())[0] == 200
    assert not heads


async def test_heads_that_go_on_at_the_same_time_wait_too(connect, app, few):
    """Nine heads arrive in two pieces: the first pieces one by one, the second ones together."""
    clients = [await connect() for _ in range(9)]
    for number, client in enumerate(clients):
        await client.send(b"POST /%d HTTP/1.1\r\n" % number)
    for client in clients:
        client._socket.send(b"content-length: 1\r\n\r\na")
    counts = [0]
    while len(app.scopes) < 9:
        await anyio.lowlevel.checkpoint()
        counts.append(len(app.scopes))
    assert max(after - before for before, after in pairwise(counts)) <= 2
    for client in clients:
        assert (await client.reply())[0] == 200


async def test_a_head_that_is_late_while_it_waits_reaches_no_application(
    connect, app, heads, loop, few
):
    clients = [await connect(head_timeout=5.0) for _ in range(6)]
    for client in clients:
        await client.send(b"POST / HTTP/1.1\r\n")
    for client in clients:
        client._socket.send(b"content-length: 0\r\n\r\n")
    while not heads:
        await anyio.lowlevel.checkpoint()
    late = [client for client in clients if client.protocol._held]
    loop.advance(5.0)
    for client in late:
        assert await client.refusal() == 408
    assert late
    assert not heads
    assert len(app.scopes) == len(clients) - len(late)


async def test_a_request_that_waits_is_whole(connect, app, few):
    """What comes after its first bytes is read later; nothing is lost."""
    clients = [await connect() for _ in range(6)]
    body = b"a" * 200_000
    head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    loop = asyncio.get_running_loop()
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(loop.sock_sendall, client._socket, head + body)
    for client in clients:
        assert (await client.reply())[2] == b"200000"


async def test_one_that_waits_keeps_its_place(connect, gate, heads, loop, few):
    """It has a request, so it does not make way for new connections."""
    clients = [await connect() for _ in range(10)]
    loop.advance(1)
    for client in clients:
        client._socket.send(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    while not heads:
        await anyio.lowlevel.checkpoint()
    assert gate.has_room()
    place = gate.enter(clients[0]._socket.fileno())
    place.wait(place.leave)
    for client in clients:
        assert (await client.reply())[0] == 200
    place.leave()


async def test_one_that_ends_while_it_waits_reaches_no_application(connect, app, heads, few):
    clients = [await connect() for _ in range(4)]
    for number, client in enumerate(clients):
        client._socket.send(b"POST /%d HTTP/1.1\r\ncontent-length: 0\r\n\r\n" % number)
    while not heads:
        await anyio.lowlevel.checkpoint()
    for client in clients:
        if client.protocol._held:
            client.protocol.transport.abort()
    while heads:
        await anyio.lowlevel.checkpoint()
    await app.until(lambda: app.num_started == 2)
    assert len(app.scopes) == 2
