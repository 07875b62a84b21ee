import contextlib
import gc
import time

import anyio
import pytest

from core.contract.config import EngineConfig, ModelConfig
from core.load import load
from core.thread import Ready
from server.app import create_app
from server.bridge import EngineBridge, State
from server.edge import with_edge
from server.settings import Settings
from tests.support.engines import DEADLINE, AnsweringEngine, GatedEngine, loaded, words


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def soon():
    """A context manager that fails after DEADLINE seconds."""
    return lambda: anyio.fail_after(DEADLINE)


@pytest.fixture
async def serve_folder(soon):
    """Start applications of the checkpoint in a folder, on the CPU.

    ``model`` are further fields of ModelConfig.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def serve(folder, *, model=None, **settings):
            ready = anyio.Event()
            chosen = Settings(served_model_names=("m",), **settings)
            config = ModelConfig(model=str(folder), device="cpu", **(model or {}))
            app = create_app(
                chosen,
                load=lambda: load(config, EngineConfig()),
                on_event=lambda _event: ready.set(),
            )
            await stack.enter_async_context(app.lifespan())
            with soon():
                await ready.wait()
            return with_edge(app)

        yield serve


@pytest.fixture
async def engine():
    engine = GatedEngine()
    yield engine
    engine.free()


@pytest.fixture
async def start_bridge(soon):
    """Start bridges, wait until they are ready, and stop their threads at the end."""
    bridges = []

    async def start(engine):
        ready = anyio.Event()
        bridge = EngineBridge(
            lambda: engine,
            on_event=lambda event: ready.set() if isinstance(event, Ready) else None,
        )
        bridges.append((bridge, engine))
        bridge.start()
        with soon():
            await ready.wait()
        assert bridge.state is State.READY
        return bridge

    yield start
    for bridge, engine in bridges:
        if isinstance(engine, GatedEngine):
            engine.free()
        assert bridge.close()
    gc.collect()  # an unclosed stream would warn here


@pytest.fixture
async def bridge(start_bridge, engine):
    return await start_bridge(engine)


@pytest.fixture
async def start_app(soon):
    """Start applications. The default engine generates ``Hi there!`` in two tokens."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            engine=None, *, tokenizer=None, info=None, clock=time.perf_counter, **settings
        ):
            ready = anyio.Event()
            engine = engine or AnsweringEngine(words("Hi", " there!"))
            chosen = Settings(**settings)
            app = create_app(
                chosen,
                load=lambda: loaded(engine, tokenizer, **(info or {})),
                on_event=lambda _event: ready.set(),
            )
            await stack.enter_async_context(app.lifespan())
            if isinstance(engine, GatedEngine):
                stack.callback(engine.free)
            with soon():
                await ready.wait()
            wrapped = with_edge(app, clock=clock)
            wrapped.litestar, wrapped.bridge = app, app.state.serving.bridge
            return wrapped

        yield start
    gc.collect()
