from __future__ import annotations

import os
import socket

import pytest

from server.connections.holder import holder_of
from server.connections.listener import ListenError, listen_tcp


def test_the_process_that_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = holder_of(port)
        assert said is not None
        assert said.endswith(f"(process {os.getpid()})")
        with pytest.raises(ListenError) as caught:
            listen_tcp("127.0.0.1", port)
        assert f"in use by {said}; stop it, or choose another port with --port" in str(caught.value)


def test_a_free_port_has_no_holder(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert holder_of(port) is None
    assert holder_of(80, tmp_path) is None


def test_an_address_that_the_machine_does_not_have():
    with pytest.raises(ListenError, match=r"the machine has no such address; --host 0\.0\.0\.0"):
        listen_tcp("192.0.2.1", 0)
