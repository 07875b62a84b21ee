import asyncio
import contextlib
import errno
import socket
import ssl

import anyio
import pytest

from server.connections import acceptor as module
from server.connections.acceptor import Acceptor
from server.connections.gate import NUM_SPARE, Gate
from server.connections.listener import listen_tcp
from server.connections.tls import tls_context
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.anyio

TLS = ROOT / "tests" / "support" / "tls"
ENDS = (anyio.EndOfStream, anyio.BrokenResourceError)


class Greeter(asyncio.Protocol):
    """Sends one byte."""

    was_shut_down = False

    def __init__(self, place):
        self.place = place

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"!")

    def shutdown(self):
        self.was_shut_down = True
        self.transport.close()

    def connection_lost(self, exc):
        self.place.leave()


class Exhausted(socket.socket):
    """A listener that has no descriptor for its first connections."""

    num_failures = 3

    def accept(self):
        if self.num_failures:
            self.num_failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.fixture
async def listen(soon, open_door):
    """Start acceptors; each comes as its gate, its address and its protocols."""
    started = []

    def listen(limit=4, tls=None, listener=None):
        listener = listener or listen_tcp("127.0.0.1", 0)
        gate, address, protocols = Gate(limit), listener.getsockname(), []

        def make(place):
            protocols.append(Greeter(place))
            return protocols[-1]

        started.append((Acceptor(listener, gate, make, open_door, tls), gate))
        return gate, address, protocols

    yield listen
    for acceptor, gate in started:
        for _ in range(2):
            acceptor.close()
        await acceptor.wait_closed()
        with soon():
            while gate.num_open:
                await anyio.lowlevel.checkpoint()


@pytest.fixture
def tls():
    return tls_context(str(TLS / "test-cert.pem"), str(TLS / "test-key.pem"))


@pytest.fixture
def client():
    return ssl.create_default_context(cafile=TLS / "test-cert.pem")


async def knock(address, **options):
    """Connect and read the byte."""
    stream = await anyio.connect_tcp(*address, **options)
    assert await stream.receive(1) == b"!"
    return stream


async def test_connections_are_accepted_and_counted(listen, soon):
    gate, address, _ = listen()
    with soon():
        async with await knock(address), await knock(address):
            assert gate.num_open == 2


async def test_many_on_the_porch_are_let_in_as_others_end(listen, soon, monkeypatch):
    monkeypatch.setattr("server.connections.gate.MIN_AGE", 3600.0)
    gate, address, protocols = listen(limit=4)

    async def visit():
        async with await knock(address):
            assert gate.num_open <= 4

    with soon():
        async with anyio.create_task_group() as tasks:
            for _ in range(4 + NUM_SPARE):
                tasks.start_soon(visit)
    assert len(protocols) == 4 + NUM_SPARE


async def test_more_than_the_porch_holds_are_told_and_a_probe_is_served(listen, soon, monkeypatch):
    """Three times as many as may be open or wait, and a probe behind all of them."""
    monkeypatch.setattr("server.connections.gate.MIN_AGE", 3600.0)
    listener = listen_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    num = 3 * (4 + NUM_SPARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(num)]
        for client in clients:
            client.send(b"POST / HTTP/1.1\r\n")
        probe = stack.enter_context(socket.create_connection(address))
        probe.send(b"GET /health HTTP/1.1\r\n")
        for client in (*clients, probe):
            client.setblocking(False)
        gate, _, _ = listen(limit=4, listener=listener)
        loop = asyncio.get_running_loop()
        with soon():
            assert await loop.sock_recv(probe, 1) == b"!"
            assert gate.num_open == 5
            for client in clients[4 : num - NUM_SPARE + 1]:
                assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 503 ")
            for client in clients[:4]:
                assert await loop.sock_recv(client, 4096) == b"!"
    # the last ones wait


async def test_with_tls_many_wait_in_the_backlog_and_all_are_served(
    listen, soon, tls, client, monkeypatch
):
    """Three times as many as may be open: none is lost, and each that ends makes room at once."""
    monkeypatch.setattr("server.connections.gate.MIN_AGE", 3600.0)
    gate, address, protocols = listen(limit=4, tls=tls)

    async def visit():
        stream = await knock(address, ssl_context=client)
        assert gate.num_open <= 4 + NUM_SPARE
        await anyio.aclose_forcefully(stream)

    with soon():
        async with anyio.create_task_group() as tasks:
            for _ in range(3 * (4 + NUM_SPARE)):
                tasks.start_soon(visit)
    assert len(protocols) == 3 * (4 + NUM_SPARE)


async def test_clients_that_have_left_get_no_protocol(listen):
    listener = listen_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    for _ in range(20):
        socket.create_connection(address).close()
    _, _, protocols = listen(listener=listener)
    async with await knock(address):
        assert len(protocols) == 1


async def test_a_client_that_sends_and_shuts_down_is_served(listen, soon):
    listener = listen_tcp("127.0.0.1", 0)
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"?")
        client.shutdown(socket.SHUT_WR)
        _, _, protocols = listen(listener=listener)
        with soon():
            while not protocols:
                await anyio.lowlevel.checkpoint()


async def test_without_descriptors_it_tries_again(listen, soon, monkeypatch, caplog):
    monkeypatch.setattr(module, "PAUSE_WITHOUT_DESCRIPTORS", 0.01)
    listener = Exhausted(fileno=listen_tcp("127.0.0.1", 0).detach())
    _, address, _ = listen(listener=listener)
    start = anyio.current_time()
    with soon():
        async with await knock(address):
            assert listener.num_failures == 0
    assert anyio.current_time() - start >= 0.025, "it waits between two tries"
    assert caplog.text.count("Too many open files") == 1


async def test_a_closed_acceptor_does_not_listen(soon, open_door):
    listener = listen_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    acceptor = Acceptor(listener, Gate(4), Greeter, open_door)
    acceptor.close()
    await acceptor.wait_closed()
    with soon(), pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(*address)


async def test_a_connection_that_is_being_opened_is_ended_by_its_protocol(soon, open_door):
    """A cancelled opening would close the transport of a request, and tell no protocol."""
    listener, gate, protocols = listen_tcp("127.0.0.1", 0), Gate(4), []

    def make(place):
        protocols.append(Greeter(place))
        return protocols[-1]

    acceptor = Acceptor(listener, gate, make, open_door)
    with socket.create_connection(listener.getsockname()), soon():
        while not protocols:
            await anyio.lowlevel.checkpoint()
        acceptor.close()
        await acceptor.wait_closed()
        assert protocols[0].was_shut_down
        while gate.num_open:
            await anyio.lowlevel.checkpoint()


async def test_with_tls_one_that_is_too_young_to_make_way_does_so_later(
    listen, soon, tls, client, monkeypatch
):
    monkeypatch.setattr("server.connections.gate.MIN_AGE", 0.2)
    _, address, protocols = listen(limit=1, tls=tls)
    with soon():
        streams = [await knock(address, ssl_context=client) for _ in range(1 + NUM_SPARE)]
        for protocol in protocols:
            protocol.place.wait(protocol.transport.abort)
        streams.append(await knock(address, ssl_context=client))
        for stream in streams:
            await anyio.aclose_forcefully(stream)


async def test_accepted_sockets_notice_peers_that_vanish(listen, soon):
    _, address, protocols = listen()
    with soon():
        async with await knock(address):
            accepted = protocols[0].transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# TLS


async def test_tls(listen, soon, tls, client):
    _, address, _ = listen(tls=tls)
    with soon():
        stream = await knock(address, ssl_context=client)
        await anyio.aclose_forcefully(stream)


async def test_a_failed_handshake_leaves_its_place(listen, soon, tls):
    gate, address, protocols = listen(tls=tls)
    with soon():
        async with await anyio.connect_tcp(*address) as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(*ENDS):
                while True:
                    await stream.receive()
        while gate.num_open:
            await anyio.lowlevel.checkpoint()
    assert not hasattr(protocols[0], "transport")


async def test_a_silent_handshake_does_not_delay_the_end(tls, soon, open_door):
    listener, gate = listen_tcp("127.0.0.1", 0), Gate(4)
    acceptor = Acceptor(listener, gate, Greeter, open_door, tls)
    with soon():
        async with await anyio.connect_tcp(*listener.getsockname()):
            while not gate.num_open:
                await anyio.lowlevel.checkpoint()
            acceptor.close()
            with anyio.fail_after(module.TLS_HANDSHAKE_TIMEOUT / 4):
                await acceptor.wait_closed()
    assert gate.num_open == 0


async def test_a_silent_handshake_makes_way(listen, soon, tls, client, monkeypatch):
    monkeypatch.setattr("server.connections.gate.MIN_AGE", 0.0)
    gate, address, _ = listen(limit=2, tls=tls)
    with soon():
        silent = [await anyio.connect_tcp(*address) for _ in range(2)]
        while gate.num_open < 2:
            await anyio.lowlevel.checkpoint()
        stream = await knock(address, ssl_context=client)
        with pytest.raises(ENDS):
            await silent[0].receive()
        for each in (stream, *silent):
            await anyio.aclose_forcefully(each)
