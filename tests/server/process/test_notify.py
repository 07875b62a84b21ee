"""The messages to a service manager, received on a real Unix datagram socket."""

import os
import signal
import socket

import anyio
import pytest

from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import eventually
from server.apis.operation.health import LIVE_STALL_SECONDS, liveness
from server.bridge.bridge import BridgeState
from server.process.draining import BEATS_PER_TIMEOUT, Notifier
from tests.server.apis.operation.test_probes import Bridge

TIMEOUT = 10.0
"""Seconds that a message may take on a busy machine."""

SHORT = 0.03
"""Seconds of a watchdog that a test waits for."""


class Manager:
    """The other end: collects the messages of a service."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(TIMEOUT)

    def receive(self) -> str:
        return self._socket.recv(4096).decode()

    def has_message(self) -> bool:
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(4096))
        except BlockingIOError:
            return False
        finally:
            self._socket.settimeout(TIMEOUT)

    def drain(self) -> None:
        while self.has_message():
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"@roseinfer-test-{os.getpid()}-{tmp_path.name}"
    manager = Manager(address)
    yield manager
    manager.close()


def notifier_of(manager, **environ):
    return Notifier({"NOTIFY_SOCKET": manager.address} | environ)


def test_the_states_are_said(manager):
    notifier = notifier_of(manager)
    notifier.ready()
    notifier.stopping()
    assert manager.receive().splitlines()[0] == "READY=1"
    assert manager.receive().splitlines()[0] == "STOPPING=1"


def test_without_a_manager_nothing_happens(caplog):
    notifier = Notifier({})
    notifier.ready()
    notifier.watch(lambda: True)  # needs no event loop: no timer begins
    assert not caplog.records


def test_a_manager_that_is_gone_is_one_warning(tmp_path, caplog):
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    notifier.ready()
    notifier.stopping()
    assert len(caplog.records) == 1


def test_a_manager_that_does_not_read_blocks_nothing(manager, caplog):
    notifier = notifier_of(manager)
    while not caplog.records:  # until the socket's queue is full
        notifier.ready()
    notifier.ready()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_watchdog_of_this_process_is_found(environ, seconds):
    assert Notifier(environ)._interval == pytest.approx(seconds / BEATS_PER_TIMEOUT)


@pytest.mark.anyio
async def test_the_watchdog_hears_nothing_of_a_server_that_is_not_alive(manager):
    """The messages stop at what ``/livez`` answers 503 to, and go on after it."""
    bridge = Bridge(BridgeState.READY)
    asked = anyio.Event()

    def is_alive():
        nonlocal asked
        asked.set()
        asked = anyio.Event()
        return liveness(bridge).status == "ok"

    async def beat():
        with anyio.fail_after(TIMEOUT):
            await asked.wait()

    microseconds = str(round(SHORT * BEATS_PER_TIMEOUT * 1e6))
    notifier_of(manager, WATCHDOG_USEC=microseconds).watch(is_alive)
    assert manager.receive() == "WATCHDOG=1"
    await beat()
    assert manager.receive() == "WATCHDOG=1"
    for state, seconds in ((BridgeState.READY, LIVE_STALL_SECONDS + 1), (BridgeState.FAILED, 0.0)):
        bridge = Bridge(state, seconds=seconds)
        manager.drain()
        await beat()
        await beat()
        assert not manager.has_message()
    for state in (BridgeState.LOADING, BridgeState.DRAINING):
        bridge = Bridge(state)
        await beat()
        assert manager.receive() == "WATCHDOG=1"


@pytest.mark.slow
def test_a_server_says_that_it_is_ready_alive_and_stopping(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(10**5)}
    server = ServerProcess(env=environ)
    try:
        server.wait_listening()
        heard = []

        def hears(line):
            heard.extend(manager.receive().splitlines())
            return line in heard

        eventually(lambda: hears("READY=1"), timeout=120)
        assert server.health() == (200, "ok")
        heard.clear()
        eventually(lambda: hears("WATCHDOG=1"))
        server.signal(signal.SIGTERM)
        eventually(lambda: hears("STOPPING=1"))
        assert server.wait_exit(30) == 0
    finally:
        server.close()
        manager.close()
