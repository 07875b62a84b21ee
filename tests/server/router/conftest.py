import contextlib
from pathlib import Path

import pytest

from compat_tests.support.process import ServerProcess, add_stderr, loopback_only
from tests.support.routers import SCRIPT, Router


def pytest_collection_modifyitems(items):
    if not Path("/proc/self/stat").exists():
        for item in items:
            if Path(__file__).parent in item.path.parents and "start_" in str(item.fixturenames):
                item.add_marker(pytest.mark.skip(reason="needs Linux"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    add_stderr(report)
    return report


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def start_router(tmp_path_factory):
    """Start routers; all end with the module."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(loopback_only())

        def start(config, *flags, **options):
            router = Router(tmp_path_factory.mktemp("router"), config, *flags, **options)
            stack.callback(router.stop)
            return router.wait_ready()

        yield start


@pytest.fixture(scope="module")
def start_upstream():
    """Start scripted servers on free ports, as servers that run already."""
    with contextlib.ExitStack() as stack:

        def start(name, *flags):
            server = Upstream(name, *flags)
            stack.callback(server.stop)
            return server.wait_ready()

        yield start


class Upstream(ServerProcess):
    def __init__(self, name, *flags):
        super().__init__(*flags, command=("-I", str(SCRIPT), name))

    def log(self):
        return self.get("/log").json
