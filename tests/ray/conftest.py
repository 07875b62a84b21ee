"""One small cluster for all tests of this folder, and the failure matrix that they print."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.ray_cluster import RayCluster
from compat_tests.support.process import loopback_only
from tests.ray.fleet import Fleet
from tests.ray.matrix import Matrix
from tests.ray.trial import FOLDER


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix-page", help="write the failure matrix into this page", default=None)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[Matrix.KEY] = Matrix()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    matrix = config.stash[Matrix.KEY]
    if not matrix.rows:
        return
    terminalreporter.section("failures behind Ray Serve")
    terminalreporter.write_line(matrix.text())
    if config.option.matrix_page:
        matrix.write(Path(config.option.matrix_page))


@pytest.fixture(scope="session")
def matrix(request) -> Matrix:
    return request.config.stash[Matrix.KEY]


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("trial")


@pytest.fixture(scope="session")
def cluster(folder) -> Iterator[RayCluster]:
    """Ray and Serve with one proxy, without an application."""
    if find_spec("ray") is None:
        pytest.skip("needs ray: pip install 'roseinfer[ray]'")
    environment = {FOLDER: str(folder), "ROSEINFER_MAX_BODY_SIZE": "1MB"}
    with loopback_only(), RayCluster(environment=environment) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def fleet(cluster, folder) -> Fleet:
    return Fleet(cluster, folder)
