import asyncio
import contextlib
import errno
import socket
import ssl
from itertools import pairwise

import anyio
import pytest

from server.net import endpoint as module
from server.net.connection_limit import RESERVE, ConnectionLimit
from server.net.endpoint import Acceptor, listen_tcp, tls_context
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.anyio

TLS = ROOT / "tests" / "support" / "tls"
ENDS = (anyio.EndOfStream, anyio.BrokenResourceError)


class Greeter(asyncio.Protocol):
    """Sends one byte."""

    was_shut_down = False

    def __init__(self, slot):
        self.slot = slot

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"!")

    def shutdown(self):
        self.was_shut_down = True
        self.transport.close()

    def connection_lost(self, exc):
        self.slot.leave()


class Exhausted(socket.socket):
    """A listener that has no descriptor for its first connections."""

    num_failures = 3

    def accept(self):
        if self.num_failures:
            self.num_failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.fixture
async def listen(soon):
    """Start acceptors; each comes as its connections, its address and its protocols."""
    started = []

    def listen(limit=4, tls=None, listener=None):
        listener = listener or listen_tcp("127.0.0.1", 0)
        connections, address, protocols = ConnectionLimit(limit), listener.getsockname(), []

        def make(slot):
            protocols.append(Greeter(slot))
            return protocols[-1]

        started.append((Acceptor(listener, connections, make, tls), connections))
        return connections, address, protocols

    yield listen
    for acceptor, connections in started:
        for _ in range(2):
            acceptor.close()
        await acceptor.wait_closed()
        with soon():
            while len(connections.open):
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
    connections, address, _ = listen()
    with soon():
        async with await knock(address), await knock(address):
            assert len(connections.open) == 2


async def test_no_iteration_of_the_loop_opens_more_than_a_few(listen, soon):
    listener = listen_tcp("127.0.0.1", 0)
    num = 3 * module.ACCEPTS
    with contextlib.ExitStack() as stack:
        for _ in range(num):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        connections, _, _ = listen(limit=1000, listener=listener)
        counts = [0]
        with soon():
            while len(connections.open) < num:
                await anyio.lowlevel.checkpoint()
                counts.append(len(connections.open))
        assert max(after - before for before, after in pairwise(counts)) <= module.ACCEPTS


@pytest.mark.parametrize("is_tls", [False, True])
async def test_many_wait_in_the_backlog_and_all_are_served(
    listen, soon, tls, client, monkeypatch, is_tls
):
    """Three times as many as may be open: none is lost, and each that ends makes room at once."""
    monkeypatch.setattr("server.net.connection_limit.MIN_AGE", 3600.0)
    connections, address, protocols = listen(limit=4, tls=tls if is_tls else None)

    async def visit():
        stream = await knock(address, **({"ssl_context": client} if is_tls else {}))
        assert len(connections.open) <= 4 + RESERVE
        await anyio.aclose_forcefully(stream)

    with soon():
        async with anyio.create_task_group() as tasks:
            for _ in range(3 * (4 + RESERVE)):
                tasks.start_soon(visit)
    assert len(protocols) == 3 * (4 + RESERVE)


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
    monkeypatch.setattr(module, "PAUSE", 0.01)
    listener = Exhausted(fileno=listen_tcp("127.0.0.1", 0).detach())
    _, address, _ = listen(listener=listener)
    start = anyio.current_time()
    with soon():
        async with await knock(address):
            assert listener.num_failures == 0
    assert anyio.current_time() - start >= 0.025, "it waits between two tries"
    assert caplog.text.count("Too many open files") == 1


async def test_a_closed_acceptor_does_not_listen(soon):
    listener = listen_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    acceptor = Acceptor(listener, ConnectionLimit(4), Greeter)
    acceptor.close()
    await acceptor.wait_closed()
    with soon(), pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(*address)


async def test_a_connection_that_is_being_opened_is_ended_by_its_protocol(soon):
    """A cancelled opening would close the transport of a request, and tell no protocol."""
    listener, connections, protocols = listen_tcp("127.0.0.1", 0), ConnectionLimit(4), []

    def make(slot):
        protocols.append(Greeter(slot))
        return protocols[-1]

    acceptor = Acceptor(listener, connections, make)
    with socket.create_connection(listener.getsockname()), soon():
        while not protocols:
            await anyio.lowlevel.checkpoint()
        acceptor.close()
        await acceptor.wait_closed()
        assert protocols[0].was_shut_down
        while len(connections.open):
            await anyio.lowlevel.checkpoint()


async def test_one_that_is_too_young_to_end_does_so_later(listen, soon, tls, client, monkeypatch):
    monkeypatch.setattr("server.net.connection_limit.MIN_AGE", 0.2)
    _, address, protocols = listen(limit=1, tls=tls)
    with soon():
        streams = [await knock(address, ssl_context=client) for _ in range(1 + RESERVE)]
        for protocol in protocols:
            protocol.slot.wait(protocol.transport.abort)
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


async def test_a_failed_handshake_leaves_its_slot(listen, soon, tls):
    connections, address, protocols = listen(tls=tls)
    with soon():
        async with await anyio.connect_tcp(*address) as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(*ENDS):
                while True:
                    await stream.receive()
        while len(connections.open):
            await anyio.lowlevel.checkpoint()
    assert not hasattr(protocols[0], "transport")


async def test_a_silent_handshake_does_not_delay_the_end(tls, soon):
    listener, connections = listen_tcp("127.0.0.1", 0), ConnectionLimit(4)
    acceptor = Acceptor(listener, connections, Greeter, tls)
    with soon():
        async with await anyio.connect_tcp(*listener.getsockname()):
            while not len(connections.open):
                await anyio.lowlevel.checkpoint()
            acceptor.close()
            with anyio.fail_after(module.TLS_HANDSHAKE_TIMEOUT / 4):
                await acceptor.wait_closed()
    assert len(connections.open) == 0


async def test_a_silent_handshake_ends_for_another(listen, soon, tls, client, monkeypatch):
    monkeypatch.setattr("server.net.connection_limit.MIN_AGE", 0.0)
    connections, address, _ = listen(limit=2, tls=tls)
    with soon():
        silent = [await anyio.connect_tcp(*address) for _ in range(2)]
        while len(connections.open) < 2:
            await anyio.lowlevel.checkpoint()
        stream = await knock(address, ssl_context=client)
        with pytest.raises(ENDS):
            await silent[0].receive()
        for each in (stream, *silent):
            await anyio.aclose_forcefully(each)
