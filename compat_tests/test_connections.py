"""HTTPS, Unix sockets, and more connections than descriptors."""

import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from compat_tests.support.api import CHAT, Api, chat_text_of, in_threads, user
from compat_tests.support.clients import sdk_options
from compat_tests.support.http import Connection, ConnectionEnded
from compat_tests.support.process import ROOT, ServerProcess
from compat_tests.support.waiting import eventually
from compat_tests.test_cli import run

TLS = ROOT / "tests" / "support" / "tls"
CERTIFICATE, KEY = str(TLS / "test-cert.pem"), str(TLS / "test-key.pem")
NUM_DESCRIPTORS = 128


@pytest.fixture(scope="module")
def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATE)


@pytest.fixture(scope="module")
def tls_server(trust: ssl.SSLContext) -> Iterator[ServerProcess]:
    server = ServerProcess("--ssl-certfile", CERTIFICATE, "--ssl-keyfile", KEY, tls=trust)
    yield server.wait_ready()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("uds") / "r.sock")


@pytest.fixture(scope="module")
def unix_server(path: str) -> Iterator[ServerProcess]:
    """On a Unix socket, with few descriptors; a dead server has left its socket there."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    command = ("-m", "tests.bystander.limited_server")
    server = ServerProcess("--uds", path, str(NUM_DESCRIPTORS), command=command)
    yield server.wait_ready()
    assert server.stop() == 0
    assert not Path(path).exists()


def check_sdk(server: ServerProcess, http: httpx2.Client) -> None:
    """The SDK streams what a raw request is answered."""
    with openai.OpenAI(**sdk_options(server), http_client=http) as client:
        [model] = client.models.list().data
        chunks = client.chat.completions.create(
            model=model.id, messages=user("Hello!"), max_tokens=8, temperature=0, stream=True
        )
        text = chat_text_of([chunk.model_dump() for chunk in chunks])
    assert text == Api(server).chat_text(max_tokens=8)


def test_tls_with_the_sdk(tls_server: ServerProcess, trust: ssl.SSLContext) -> None:
    assert f"Listening on {tls_server.url}," in tls_server.stdout
    assert tls_server.url.startswith("https://")
    check_sdk(tls_server, httpx2.Client(verify=trust))


def test_tls_without_tls(tls_server: ServerProcess) -> None:
    with (
        Connection(tls_server.host, tls_server.port, timeout=10) as plain,
        pytest.raises((ConnectionEnded, ConnectionError)),
    ):
        plain.request("GET", "/health")
    assert tls_server.health() == (200, "ok")


def test_tls_is_checked_by_the_client(tls_server: ServerProcess) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(tls_server.host, tls_server.port, tls=ssl.create_default_context())


def test_a_client_that_leaves_a_tls_stream_is_noticed(tls_server: ServerProcess) -> None:
    api = Api(tls_server)
    body = api.chat_body("Tell me a story.", max_tokens=1900, ignore_eos=True, stream=True)
    with api.open(CHAT, body) as (_, reply):
        assert next(reply.pieces())
    api.wait_idle()


def test_a_wrong_certificate_is_one_line_and_code_2() -> None:
    done = run("serve", "--ssl-certfile", CERTIFICATE, "--ssl-keyfile", CERTIFICATE)
    assert done.returncode == 2
    assert done.stderr.startswith("roseinfer: --ssl-certfile: ")
    assert done.stderr.count("\n") == 1


def test_unix_socket_with_the_sdk(unix_server: ServerProcess, path: str) -> None:
    assert f"Listening on unix:{path}," in unix_server.stdout
    check_sdk(unix_server, httpx2.Client(transport=httpx2.HTTPTransport(uds=path)))
    eventually(lambda: " ms local " in unix_server.stderr, what="the socket's tenant in the log")


def test_silent_connections_make_way(unix_server: ServerProcess) -> None:
    api = Api(unix_server)
    with contextlib.ExitStack() as stack:
        for _ in range(2 * NUM_DESCRIPTORS):
            stack.enter_context(unix_server.connect())
        assert unix_server.health() == (200, "ok")
        assert api.chat_text(max_tokens=1)
        assert unix_server.health() == (200, "ok")


def test_more_requests_at_once_than_descriptors(unix_server: ServerProcess) -> None:
    api = Api(unix_server)
    body = api.chat_body(max_tokens=1)

    def ask(_: int) -> int:
        return api.post(CHAT, body).status

    statuses = Counter(in_threads(ask, range(3 * NUM_DESCRIPTORS), width=3 * NUM_DESCRIPTORS))
    assert set(statuses) <= {200, 429, 503}
    assert statuses[200]
    assert unix_server.health() == (200, "ok")
