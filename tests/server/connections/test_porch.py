"""Connections that come while the gate is full. No time passes: the clock is scripted."""

import json
import socket
from itertools import pairwise

import anyio.lowlevel
import pytest

from server.connections.gate import MIN_AGE, NUM_SPARE, Gate
from server.connections.lingering import Lingering
from server.connections.porch import (
    HELD_SECONDS,
    OPENED_PER_TURN,
    PATIENCE,
    SILENT_SECONDS,
    Porch,
    peek,
)

pytestmark = pytest.mark.anyio

LIMIT = 3
POST = b"POST / HTTP/1.1\r\nhost: h\r\n\r\n"
PROBE = b"GET /health HTTP/1.1\r\n\r\n"


@pytest.fixture
def limit():
    return LIMIT


@pytest.fixture
async def gate(loop, limit):
    return Gate(limit, clock=loop.time)


@pytest.fixture
async def inside():
    """The connections that were let in, with their places."""
    return []


class ScriptedDoor:
    """Answers what begins with POST while the server is full."""

    def __init__(self):
        self.has_room = True
        self.answered = []

    def is_full(self):
        return not self.has_room

    def try_answer(self, connection):
        if self.has_room or not (peek(connection) or b"").startswith(b"POST"):
            return False
        self.answered.append(connection.recv(100))
        return True


@pytest.fixture
def door():
    return ScriptedDoor()


@pytest.fixture
async def lingering(loop):
    return Lingering(loop, 5.0)


@pytest.fixture
async def porch(gate, loop, inside, door, lingering):
    def let_in(connection):
        place = gate.enter(connection.fileno())
        connection.setblocking(False)
        inside.append((connection, place))

    porch = Porch(gate, let_in, loop, door, lingering)
    yield porch
    for _ in range(2):
        porch.close()
    assert loop.num_timers == 0
    for connection, _ in inside:
        connection.close()


@pytest.fixture
def knock(porch):
    """Connect, with the first bytes of a request; returns the client's socket."""
    clients = []

    def knock(data=b""):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(0)
        clients.append(theirs)
        if data:
            theirs.send(data)
        porch.arrive(ours, peek(ours))
        return theirs

    yield knock
    for client in clients:
        client.close()


def status(client):
    """The status of an answer after which the connection ends; None: it is open."""
    try:
        answer = client.recv(65536)
    except BlockingIOError:
        return None
    head, body = answer.split(b"\r\n\r\n")
    assert b"connection: close" in head.split(b"\r\n")
    assert b"retry-after: 1" in head.split(b"\r\n")
    assert json.loads(body)["error"]["code"] == "server_is_overloaded"
    assert client.recv(1) == b""
    return int(head[9:12])


async def test_with_room_all_go_in(knock, inside, porch):
    for data in (b"", POST, PROBE):
        knock(data)
    assert (len(inside), len(porch)) == (3, 0)


@pytest.mark.parametrize("limit", [1000])
async def test_many_are_opened_a_few_in_each_turn(knock, inside, porch):
    """A hundred come in one turn of the loop, and then a probe."""
    num = 100
    for _ in range(num):
        knock(POST)
    knock(PROBE)
    assert len(inside) == OPENED_PER_TURN + 1
    assert inside[-1][0].recv(100) == PROBE, "in the turn in which it comes"
    counts = [len(inside)]
    while len(inside) < num + 1:
        await anyio.lowlevel.checkpoint()
        counts.append(len(inside))
    assert max(after - before for before, after in pairwise(counts)) <= OPENED_PER_TURN
    assert not porch


async def test_those_without_room_wait_in_order(knock, inside, porch, gate):
    for _ in range(LIMIT):
        knock(POST)
    knock(b"GET /1")
    knock(b"GET /2")
    assert (len(inside), len(porch)) == (LIMIT, 2)
    inside[0][1].leave()
    porch.let_in_waiting()
    assert inside[-1][0].recv(100) == b"GET /1"
    knock(b"GET /3")
    inside[1][1].leave()
    porch.let_in_waiting()
    assert inside[-1][0].recv(100) == b"GET /2", "nobody passes those that wait"
    assert gate.num_open == LIMIT


async def test_a_probe_passes(knock, inside, porch):
    for _ in range(LIMIT + 5):
        knock(POST)
    knock(PROBE)
    assert inside[-1][0].recv(100) == PROBE
    assert len(porch) == 5


async def test_a_probe_that_sends_late_passes(knock, inside, loop):
    for _ in range(LIMIT + 5):
        knock(POST)
    client = knock()
    loop.advance(0.05)
    assert len(inside) == LIMIT
    client.send(PROBE)
    loop.advance(0.011)
    assert inside[-1][0].recv(100) == PROBE


async def test_a_request_that_finds_no_room_is_answered(knock, inside, loop, porch):
    for _ in range(LIMIT):
        knock(POST)
    client = knock(POST)
    loop.advance(PATIENCE - 0.01)
    assert status(client) is None
    loop.advance(0.03)
    assert status(client) == 503
    assert (len(inside), len(porch)) == (LIMIT, 0)


async def test_a_silent_one_may_think_for_longer(knock, loop, porch):
    for _ in range(LIMIT):
        knock(POST)
    client = knock()
    loop.advance(SILENT_SECONDS - 0.1)
    assert status(client) is None
    loop.advance(0.2)
    assert status(client) == 503
    assert not porch


async def test_the_oldest_of_too_many_is_answered(knock, inside, porch):
    for _ in range(LIMIT):
        knock(POST)
    clients = [knock(POST if number % 2 else b"") for number in range(NUM_SPARE + 10)]
    assert [status(client) for client in clients[:11]] == [503] * 10 + [None]
    assert (len(inside), len(porch)) == (LIMIT, NUM_SPARE)


async def test_an_oldest_that_turns_out_a_probe_is_let_in(knock, inside, porch):
    for _ in range(LIMIT):
        knock(POST)
    late = knock()
    others = [knock(POST) for _ in range(NUM_SPARE - 1)]
    late.send(PROBE)
    knock(POST)
    assert inside[-1][0].recv(100) == PROBE
    assert status(others[0]) == 503, "the probe has taken a descriptor"
    assert len(porch) == NUM_SPARE - 1


async def test_a_flood_of_probes_is_bounded(knock, gate, porch):
    """However many come, as many descriptors are taken as there are."""
    clients = [knock(PROBE) for _ in range(3 * (LIMIT + NUM_SPARE))]
    assert gate.num_open + len(porch) == LIMIT + NUM_SPARE
    assert [status(client) for client in clients].count(503) == 2 * (LIMIT + NUM_SPARE)


async def test_idle_connections_make_way(knock, inside, gate, loop):
    ended = []
    for _ in range(LIMIT):
        knock()
        inside[-1][1].wait(lambda: ended.append(1))
    knock(POST)
    knock(POST)
    assert not ended, "they came just now"
    loop.advance(MIN_AGE + 0.011)
    assert len(ended) == gate.num_leaving == 2, "one for each that waits"


async def test_one_that_leaves_is_forgotten(knock, loop, porch, gate):
    for _ in range(LIMIT):
        knock(POST)
    knock().close()
    loop.advance(0.011)
    assert not porch
    assert loop.num_timers == 0, "nobody is looked at any more"
    assert gate.num_open == LIMIT


async def test_one_that_was_reset_is_no_fault(knock, inside, loop, porch):
    for _ in range(LIMIT):
        knock(POST)
    for _ in range(NUM_SPARE + 5):
        knock(POST).close()
    assert len(porch) == NUM_SPARE
    loop.advance(PATIENCE + 0.011)
    assert not porch
    assert len(inside) == LIMIT


# While most requests are turned away


@pytest.mark.parametrize("limit", [100])
async def test_what_is_turned_away_is_not_opened(knock, inside, porch, door, gate):
    door.has_room = False
    knock(POST)
    knock(PROBE)
    door.has_room = True
    knock(POST)
    assert door.answered == [POST]
    assert [connection.recv(100) for connection, _ in inside] == [PROBE, POST]
    assert (len(porch), gate.num_open) == (0, 2)


@pytest.mark.parametrize("limit", [1000])
async def test_a_few_are_answered_in_each_turn(knock, porch, door):
    door.has_room = False
    for _ in range(100):
        knock(POST)
    assert len(door.answered) == OPENED_PER_TURN
    counts = [len(door.answered)]
    while len(door.answered) < 100:
        await anyio.lowlevel.checkpoint()
        counts.append(len(door.answered))
    assert max(after - before for before, after in pairwise(counts)) <= OPENED_PER_TURN
    assert not porch


@pytest.mark.parametrize("limit", [100])
async def test_one_that_sends_a_moment_later_is_answered_too(knock, inside, loop, door, porch):
    door.has_room = False
    client = knock()
    assert (len(porch), inside) == (1, [])
    client.send(POST)
    loop.advance(0.011)
    assert door.answered == [POST]
    assert (len(porch), inside) == (0, [])


@pytest.mark.parametrize("limit", [100])
async def test_one_that_stays_silent_is_opened_soon(knock, inside, loop, door, porch):
    door.has_room = False
    knock()
    knock().close()
    loop.advance(2 * HELD_SECONDS)
    assert (len(porch), len(inside)) == (0, 1), "the other one has left"
    door.has_room = True
    knock()
    assert len(inside) == 2, "at once where there is room for its request"


async def test_no_more_are_held_than_there_are_descriptors(knock, inside, porch, door, gate):
    """Half of the limit may be open or held; the others take the usual way."""
    door.has_room = False
    for _ in range(LIMIT + NUM_SPARE + 20):
        knock()
    assert gate.num_open == len(inside) == LIMIT
    assert gate.num_open + len(porch) <= LIMIT + NUM_SPARE


def test_peeking_leaves_the_bytes():
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with theirs:
            assert peek(ours) is None
            theirs.send(PROBE)
            for _ in range(2):
                assert PROBE.startswith(peek(ours))
            assert ours.recv(100) == PROBE
        assert peek(ours) == b""


# After an answer


@pytest.mark.parametrize("limit", [100])
async def test_an_answered_one_may_still_send(knock, door):
    door.has_room = False
    client = knock(POST)
    assert client.recv(1) == b"", "our half is closed"
    client.send(b"late")


async def test_a_refused_one_may_still_send(knock, loop):
    for _ in range(LIMIT):
        knock(POST)
    client = knock(POST)
    loop.advance(PATIENCE + 0.011)
    client.send(b"late")
    assert status(client) == 503


@pytest.mark.parametrize("data", [POST, b""], ids=["request", "silent"])
async def test_those_answered_at_the_door_are_bounded(knock, loop, lingering, door, data):
    """Each is answered in the turn in which it comes or is looked at, so none waits."""
    door.has_room = False
    for _ in range(LIMIT + 2 * NUM_SPARE):
        client = knock(data)
        client.setblocking(False)
        if not data:
            client.send(POST)
            loop.advance(HELD_SECONDS + 0.011)
        await anyio.lowlevel.checkpoint()
    assert len(door.answered) == LIMIT + 2 * NUM_SPARE
    assert len(lingering) <= LIMIT + NUM_SPARE


async def test_answered_ones_give_their_descriptors_to_new_ones(knock, inside, loop, porch):
    for _ in range(LIMIT + NUM_SPARE):
        knock(POST)
    loop.advance(PATIENCE + 0.011)
    assert (len(inside), len(porch)) == (LIMIT, 0), "the others were refused, and linger"
    clients = [knock(b"GET /") for _ in range(NUM_SPARE)]
    assert len(porch) == NUM_SPARE
    assert [status(client) for client in clients] == [None] * NUM_SPARE
