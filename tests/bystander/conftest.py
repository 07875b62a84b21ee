"""Servers with bystanders, and the table of the soak."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from compat_tests.support.process import ServerProcess, add_stderr, loopback_only
from tests.bystander.routed import RoutedServer
from tests.bystander.stand import Stand
from tests.bystander.table import Table

MEMORY = 12_000_000_000
"""Address space of a server under attack: it fails before the machine does."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reliability-page", help="write the table of the soak into this page", default=None
    )
    parser.addoption("--soak-minutes", help="length of the mixed load", default=10.0, type=float)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[Table.KEY] = Table()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    table = config.stash[Table.KEY]
    if table.is_empty:
        return
    terminalreporter.section("reliability")
    terminalreporter.write_line(table.text())
    if config.option.reliability_page:
        table.write(Path(config.option.reliability_page))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The bystanders read /proc and connect from two loopback addresses."""
    if not Path("/proc/self/stat").exists():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs Linux"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    add_stderr(report)
    return report


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Table:
    return request.config.stash[Table.KEY]


@pytest.fixture
def soak_minutes(request: pytest.FixtureRequest) -> float:
    return float(request.config.option.soak_minutes)


@pytest.fixture(scope="package")
def start_server() -> Iterator[Callable[..., ServerProcess]]:
    """Start servers whose memory is limited; all end with the package."""
    servers: list[ServerProcess] = []

    def start(
        *flags: str,
        num_descriptors: int | None = None,
        is_faulty: bool = False,
        holdings_at: str = "",
    ) -> ServerProcess:
        if is_faulty:
            server = ServerProcess(*flags, command=("-m", "compat_tests.support.faulty_server"))
        elif holdings_at:
            command = ("-m", "tests.bystander.measured_server", holdings_at)
            server = ServerProcess(*flags, command=command)
        elif num_descriptors is not None:
            command = ("-m", "tests.bystander.limited_server")
            server = ServerProcess(*flags, str(num_descriptors), command=command)
        else:
            server = ServerProcess(*flags)
        servers.append(server)
        resource.prlimit(server.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="package")
def start_pooling(start_server, tmp_path_factory) -> Callable[[str], ServerProcess]:
    """Start a server of a small model that makes vectors (``embed``) or scores (``score``)."""

    def start(kind: str) -> ServerProcess:
        # it imports torch and transformers
        from tests.support.pooling_models import (  # noqa: PLC0415
            describe,
            save_cross_encoder,
            save_encoder,
        )

        folder = tmp_path_factory.mktemp(kind)
        if kind == "embed":
            save_encoder(folder)
            describe(folder, pooling={"pooling_mode": "mean"}, normalizes=True)
        else:
            save_cross_encoder(folder)
        return start_server(str(folder)).wait_ready()

    return start


@pytest.fixture(scope="package")
def start_routed(tmp_path_factory) -> Iterator[Callable[[], RoutedServer]]:
    """Start routers; all end with the package."""
    with ExitStack() as stack:

        def start() -> RoutedServer:
            server = RoutedServer(tmp_path_factory.mktemp("router"))
            stack.callback(server.stop)
            return server.wait_ready()

        yield start


@pytest.fixture(scope="package")
def resting_stands(start_server, start_pooling, start_routed) -> Iterator[Callable[[str], Stand]]:
    """Make the small stand of a kind of server, ``text``, ``embed`` or ``route``, or return it.

    Its bystanders rest: they would take the processors from other stands, and from other tests.
    """
    starts = {
        "text": lambda: start_server().wait_ready(),
        "embed": lambda: start_pooling("embed"),
        "route": start_routed,
    }
    with ExitStack() as stack:

        @cache
        def resting(kind: str) -> Stand:
            makes_text = kind != "embed"
            stand = Stand(
                starts[kind](),
                size=0.1,
                num_tokens=300 if makes_text else 0,
                kind="text" if makes_text else kind,
            )
            stack.callback(stand.close)
            stack.enter_context(stand.quiet())
            return stand

        yield resting


@pytest.fixture
def wake(resting_stands) -> Iterator[Callable[[str], Stand]]:
    """Return the small stand of a kind; its bystanders are awake until the test ends."""
    with ExitStack() as stack:

        def awake(kind: str) -> Stand:
            stand = resting_stands(kind)
            stack.enter_context(stand.awake())
            return stand

        yield awake


@pytest.fixture
def quick_stand(wake) -> Stand:
    return wake("text")


@pytest.fixture(scope="package")
def routed_stand(start_routed) -> Iterator[Stand]:
    """Its bystanders are quiet, like those of pooling stands."""
    stand = Stand(start_routed(), size=1, num_tokens=1500)
    stand.fill_cache()
    with stand.quiet():
        yield stand
    stand.close()


@pytest.fixture(scope="package")
def pooling_stands(start_pooling) -> Iterator[dict[str, Stand]]:
    """Their bystanders are quiet: they would take the processors from the other stands."""
    kinds = ("embed", "score")
    stands = {kind: Stand(start_pooling(kind), size=1, num_tokens=0, kind=kind) for kind in kinds}
    with ExitStack() as stack:
        for stand in stands.values():
            stack.callback(stand.close)
            stack.enter_context(stand.quiet())
        yield stands


@pytest.fixture(scope="package")
def stand(start_server, tmp_path_factory) -> Iterator[Stand]:
    path = str(tmp_path_factory.mktemp("stand") / "holdings.sock")
    server = start_server(holdings_at=path).wait_ready()
    stand = Stand(server, size=1, num_tokens=1500, holdings_at=path)
    stand.fill_cache()
    yield stand
    stand.close()


@pytest.fixture(scope="session", autouse=True)
def _no_detours() -> Iterator[None]:
    """Loopback only; enough descriptors for the attacks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    with loopback_only():
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
