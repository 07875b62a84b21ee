"""A replica without Serve: its life, its health, and the paths below a prefix."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import pytest
from anyio import lowlevel

from core.contract.errors import ModelLoadError
from server.bridge.bridge import BridgeState
from server.ray.replica import Replica, ReplicaFailed
from tests.support.asgi import ask
from tests.support.engines import DEADLINE, AnsweringEngine, GatedEngine, loaded, settle, words
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def _same_process(monkeypatch):
    """The tests' process is set up already."""
    monkeypatch.setattr("server.ray.replica.set_up_server", lambda _settings: None)
    monkeypatch.setattr("server.process.heap.freeze", lambda: None)


class Scripted(Replica):
    def __init__(self, load):
        super().__init__(["--max-num-seqs", "3"])
        self.max_num_seqs = 0
        self._load = load

    def load(self, settings):
        self.max_num_seqs = settings.engine.max_num_seqs
        return self._load()


def answering():
    return loaded(AnsweringEngine(words("Hi", " there!")))


def failing():
    raise ModelLoadError("there is no such file")


async def test_the_first_check_of_health_waits_for_the_engine(soon):
    may_load = threading.Event()

    def load():
        assert may_load.wait(DEADLINE)
        return answering()

    replica = Scripted(load)
    replica.__serve_build_asgi_app__()
    healthy = anyio.Event()

    async def check():
        await replica.check_health()
        healthy.set()

    async with replica._app.lifespan(), anyio.create_task_group() as tasks:
        tasks.start_soon(check)
        await settle()
        assert not healthy.is_set()
        may_load.set()
        with soon():
            await healthy.wait()
    assert replica.max_num_seqs == 3


async def test_an_engine_that_dies_is_not_healthy(soon):
    engine = GatedEngine()
    replica = Scripted(lambda: loaded(engine))
    app = replica.__serve_build_asgi_app__()
    async with replica._app.lifespan(), anyio.create_task_group() as tasks:
        with soon():
            await replica.check_health()
        tasks.start_soon(ask, app, "POST", CHAT, HI)
        await engine.admit(1)
        stats = replica.record_routing_stats()
        assert set(stats) == {"num_running", "num_waiting", "num_free_blocks"}
        engine.crash()
        with soon():
            while replica._app.state.serving.bridge.state is not BridgeState.FAILED:
                await lowlevel.checkpoint()
        with pytest.raises(ReplicaFailed, match="the engine died"):
            await replica.check_health()


async def test_a_load_that_fails_says_why(soon):
    replica = Scripted(failing)
    replica.__serve_build_asgi_app__()
    async with replica._app.lifespan():
        with soon(), pytest.raises(ReplicaFailed, match="there is no such file"):
            await replica.check_health()


@pytest.mark.parametrize("prefix", ["", "/small"])
async def test_paths_are_those_below_the_prefix(soon, prefix):
    replica = Scripted(answering)
    app = replica.__serve_build_asgi_app__()

    async def served(scope, receive, send):
        """As Serve passes a request on."""
        await app({**scope, "root_path": prefix}, receive, send)

    async with replica._app.lifespan():
        with soon():
            await replica.check_health()
        for path in (CHAT, "/chat/completions"):
            assert (await ask(served, "POST", prefix + path, HI)).status == 200
        assert (await ask(served, "GET", prefix + "/nowhere")).status == 404


def test_a_replica_sets_its_process_up_before_torch_is_imported():
    """Torch reads OMP_NUM_THREADS when it is imported."""
    code = (
        "import sys, server.ray.replica, server.ray.edge, server.ray.plan\n"
        "assert not {'torch', 'transformers', 'ray', 'starlette'} & set(sys.modules)\n"
        "server.ray.replica.Replica([])\n"
        "assert 'torch' not in sys.modules and sys.getswitchinterval() < 0.001\n"
        "import os; assert os.environ['OMP_NUM_THREADS']"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)  # noqa: S603 - own code
