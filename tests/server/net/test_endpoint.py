import os
import re
import socket
import ssl
import stat

import pytest

from server.net.endpoint import (
    ListenError,
    listen_tcp,
    listen_unix,
    listening_process,
    open_endpoint,
    tls_context,
)
from server.settings.settings import Settings
from tests.support.source_tree import ROOT

TLS = ROOT / "tests" / "support" / "tls"
CERTIFICATE, KEY = str(TLS / "test-cert.pem"), str(TLS / "test-key.pem")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "r.sock")


def test_urls(path):
    for settings, url in [
        ({"port": 0}, r"http://127\.0\.0\.1:\d+"),
        ({"port": 0, "host": "::1"}, r"http://\[::1\]:\d+"),
        ({"port": 0, "ssl_certfile": CERTIFICATE, "ssl_keyfile": KEY}, r"https://127.*"),
        ({"uds": path}, f"unix:{path}"),
    ]:
        endpoint = open_endpoint(Settings(**settings))
        assert re.fullmatch(url, endpoint.url)
        endpoint.close()


def test_a_taken_port_is_one_line():
    with listen_tcp("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            listen_tcp("127.0.0.1", port)


def test_owner_and_group_may_connect_to_a_unix_socket(path, tmp_path):
    with listen_unix(path):
        assert stat.S_IMODE((tmp_path / "r.sock").stat().st_mode) == 0o660


def test_the_socket_of_a_dead_server_is_replaced(path):
    listen_unix(path).close()
    with listen_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_the_socket_of_a_live_server_is_kept(path):
    with listen_unix(path):
        with pytest.raises(ListenError, match="another process listens on it"):
            listen_unix(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_file_is_kept(path, tmp_path):
    (tmp_path / "r.sock").write_text("mine")
    with pytest.raises(ListenError, match="not a socket"):
        listen_unix(path)
    assert (tmp_path / "r.sock").read_text() == "mine"


def test_a_path_that_cannot_be_made_is_one_line(tmp_path):
    for path in (tmp_path / "nowhere" / "r.sock", tmp_path / ("x" * 200)):
        with pytest.raises(ListenError) as caught:
            listen_unix(str(path))
        assert "\n" not in str(caught.value)


def test_the_socket_is_removed(path, tmp_path):
    endpoint = open_endpoint(Settings(uds=path))
    for _ in range(2):
        endpoint.close()
        assert not (tmp_path / "r.sock").exists()


def test_a_file_in_its_place_is_kept(path, tmp_path):
    endpoint = open_endpoint(Settings(uds=path))
    (tmp_path / "r.sock").unlink()
    (tmp_path / "r.sock").write_text("mine")
    endpoint.close()
    assert (tmp_path / "r.sock").read_text() == "mine"


def test_the_process_that_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = listening_process(port)
        assert said is not None
        assert said.endswith(f"(process {os.getpid()})")
        with pytest.raises(ListenError) as caught:
            listen_tcp("127.0.0.1", port)
        assert f"in use by {said}; stop it, or choose another port with --port" in str(caught.value)


def test_a_free_port_is_of_no_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert listening_process(port) is None
    assert listening_process(80, tmp_path) is None


def test_an_address_that_the_machine_does_not_have():
    with pytest.raises(ListenError, match=r"the machine has no such address; --host 0\.0\.0\.0"):
        listen_tcp("192.0.2.1", 0)


# TLS


def test_without_a_certificate_there_is_no_tls():
    assert tls_context(None, None) is None


def test_certificate_and_key():
    context = tls_context(CERTIFICATE, KEY)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_one_file_may_hold_both(tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes((TLS / "test-cert.pem").read_bytes() + (TLS / "test-key.pem").read_bytes())
    assert tls_context(str(both), None)


@pytest.mark.parametrize(
    ("certificate", "key", "text"),
    [
        (None, KEY, "--ssl-keyfile needs --ssl-certfile"),
        ("/nowhere/c.pem", KEY, "--ssl-certfile: cannot read /nowhere/c.pem: No such file"),
        (CERTIFICATE, "/nowhere/k.pem", "--ssl-keyfile: cannot read /nowhere/k.pem"),
        (CERTIFICATE, str(TLS), f"--ssl-keyfile: cannot read {TLS}: Is a directory"),
        (CERTIFICATE, str(TLS / "other-key.pem"), "other-key.pem is not the key of"),
        (CERTIFICATE, str(TLS / "locked-key.pem"), "the key has a password"),
        (CERTIFICATE, None, "no certificate and key in PEM form"),
        (str(TLS / "README.md"), KEY, "no certificate and key in PEM form"),
    ],
)
def test_what_cannot_be_used_is_one_line(certificate, key, text):
    with pytest.raises(ListenError) as caught:
        tls_context(certificate, key)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
