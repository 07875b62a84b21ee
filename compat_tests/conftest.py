"""Fixtures: one server for most tests, a factory for special ones, and clients for them."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2.sandbox
import openai
import pytest
from tokenizers import Tokenizer

from compat_tests.support.api import Api, Json
from compat_tests.support.clients import sdk_options
from compat_tests.support.process import ROOT, ServerProcess, add_stderr, loopback_only

WEIGHTS = ROOT / "core" / "builtin_model" / "weights"
FAULTY = ("-m", "compat_tests.support.faulty_server")

StartServer = Callable[..., ServerProcess]


def pytest_configure() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # fixtures end their servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    add_stderr(report)
    return report


@pytest.fixture(scope="session", autouse=True)
def _no_detours() -> Iterator[None]:
    with loopback_only():
        yield


def _running(*flags: str, **options) -> Iterator[ServerProcess]:
    server = ServerProcess(*flags, **options)
    try:
        yield server.wait_ready()
        code = server.stop()
        assert "Traceback" not in server.final_stderr, server.final_stderr[-4000:]
        assert code == 0
    finally:
        server.close()


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """The server of most tests, with nothing but defaults."""
    yield from _running()


@pytest.fixture(scope="session")
def guarded_server() -> Iterator[ServerProcess]:
    """Keys, allowed origins, a small body limit, a name with a slash, an interval of tokens."""
    yield from _running(
        *("--api-key", "key-one", "--api-key", "key-two"),
        *("--allowed-origins", "https://app.example"),
        *("--max-body-size", "100000"),
        *("--served-model-name", "rose/tiny model"),
        *("--stream-interval", "8"),
        *("--tokenizer-workers", "2"),
        *("--forwarded-allow-ips", "127.0.0.1"),
    )


@pytest.fixture(scope="session")
def narrow_server() -> Iterator[ServerProcess]:
    """One request at a time, one in the queue, a small window."""
    yield from _running(
        *("--max-num-seqs", "1", "--max-queued-requests", "1"),
        *("--max-model-len", "1024"),
    )


@pytest.fixture(scope="session")
def faulty_server() -> Iterator[ServerProcess]:
    """The built-in model, but its runner fails on demand: see support/faulty_server.py."""
    server = ServerProcess("--keep-alive-interval", "0.3", command=FAULTY)
    try:
        yield server.wait_ready()
    finally:
        server.stop()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start servers that end with the test; not waited for."""
    servers: list[ServerProcess] = []

    def start(*flags: str, **options) -> ServerProcess:
        servers.append(ServerProcess(*flags, **options))
        return servers[-1]

    yield start
    for started in servers:
        started.close()


@pytest.fixture
def api(server: ServerProcess) -> Api:
    return Api(server)


@pytest.fixture
def guarded(guarded_server: ServerProcess) -> Api:
    return Api(guarded_server, {"authorization": "Bearer key-one"})


@pytest.fixture
def narrow(narrow_server: ServerProcess) -> Api:
    return Api(narrow_server)


@pytest.fixture
def faulty(faulty_server: ServerProcess) -> Api:
    return Api(faulty_server)


@pytest.fixture(scope="session")
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**sdk_options(server)) as client:
        yield client


@pytest.fixture
def async_sdk(server: ServerProcess) -> Callable[[], openai.AsyncOpenAI]:
    """A maker of clients: each belongs to the event loop that it is made in."""
    return lambda: openai.AsyncOpenAI(**sdk_options(server))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The built-in model's tokenizer, read without the server's code."""
    return Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))


@pytest.fixture(scope="session")
def render() -> Callable[..., str]:
    """The built-in model's chat template, rendered without the server's code."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((WEIGHTS / "chat_template.jinja").read_text())

    def render(messages: list[Json], **options) -> str:
        return template.render(messages=messages, **({"add_generation_prompt": True} | options))

    return render


@pytest.fixture(scope="session")
def eos_token_ids() -> set[int]:
    value = json.loads(Path(WEIGHTS / "generation_config.json").read_text())["eos_token_id"]
    return {value} if isinstance(value, int) else set(value)
