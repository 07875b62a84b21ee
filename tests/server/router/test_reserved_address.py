"""Addresses of processes that the router starts."""

import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from server.router.child import ReservedAddress

OPTIONS = [getattr(socket, name) for name in ("SO_REUSEADDR", "SO_REUSEPORT")]


def test_a_socket_is_in_a_folder_of_its_own_that_goes():
    with closing(ReservedAddress(["x", "--uds={socket}"])) as reserved:
        path = Path(reserved.address.socket_path)
        assert reserved.filled("--uds={socket}") == f"--uds={path}"
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.parent.exists()
    reserved.close()


def test_no_two_have_the_same_port_and_the_system_gives_it_to_nobody_else():
    with ExitStack() as stack:
        found = [stack.enter_context(closing(ReservedAddress(["{port}"]))) for _ in range(50)]
        ports = {reserved.address.port for reserved in found}
        assert len(ports) == len(found)
        others = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(50)]
        assert not ports & {other.getsockname()[1] for other in others}
        with pytest.raises(OSError, match="in use"):  # neither option
            stack.enter_context(socket.socket()).bind(("127.0.0.1", found[0].address.port))


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_server_listens_on_it_all_the_same_and_is_reached(host, option):
    with closing(ReservedAddress(["--port", "{port}"])) as reserved, socket.socket() as server:
        port = int(reserved.filled("{port}"))
        server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((host, port))
        server.listen()
        with socket.create_connection((reserved.address.host, port)) as client:
            client.sendall(b"x")
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(1) == b"x"
