"""/livez and /readyz: a step that makes no progress is seen, with the reason."""

import anyio
import msgspec
import pytest

from core.observe.progress import Progress
from server.apis.operation.health import (
    LIVE_STALL_SECONDS,
    READY_STALL_SECONDS,
    liveness,
    readiness,
)
from server.bridge.bridge import BridgeState
from tests.support.asgi import Exchange, ask
from tests.support.clock import Clock
from tests.support.engines import last

pytestmark = pytest.mark.anyio

PATHS = ("/livez", "/readyz")


class Bridge:
    """A bridge in a state, whose core thread has been busy for some seconds."""

    def __init__(self, state=BridgeState.READY, *, seconds=0.0, longest=0.0):
        clock = Clock()
        self.state = state
        self.progress = Progress(clock)
        self.progress.longest = longest
        self.progress.begin()
        clock.now = seconds


def statuses(bridge):
    return liveness(bridge).status, readiness(bridge).status


def test_a_stalled_step_is_seen_within_five_seconds():
    assert READY_STALL_SECONDS < 5
    assert statuses(Bridge(seconds=READY_STALL_SECONDS)) == ("ok", "ok")
    stalled = readiness(Bridge(seconds=4.94))
    assert stalled.status == "stalled"
    assert stalled.reason == (
        "The engine has made no progress for 4.9 s; its longest step took 0.0 s."
    )


def test_a_step_that_hangs_for_long_is_a_reason_to_restart():
    assert statuses(Bridge(seconds=LIVE_STALL_SECONDS + 1)) == ("stalled", "stalled")


def test_a_machine_whose_steps_are_slow_is_given_more_time():
    assert statuses(Bridge(seconds=25, longest=13)) == ("ok", "ok")
    assert statuses(Bridge(seconds=27, longest=13)) == ("ok", "stalled")
    assert statuses(Bridge(seconds=131, longest=13)) == ("stalled", "stalled")


@pytest.mark.parametrize(
    ("state", "live"),
    [(BridgeState.LOADING, "ok"), (BridgeState.DRAINING, "ok"), (BridgeState.FAILED, "failed")],
)
def test_other_states_are_not_ready(state, live):
    bridge = Bridge(state)
    assert statuses(bridge) == (live, state.value)
    assert readiness(bridge).reason


async def test_a_hanging_step_shows_and_passes(start_app, engine, monkeypatch):
    app = await start_app(engine)
    for path in PATHS:
        exchange = await ask(app, "GET", path)
        assert (exchange.status, exchange.json) == (200, {"status": "ok"})
    for name in ("READY_STALL_SECONDS", "LIVE_STALL_SECONDS"):
        monkeypatch.setattr(f"server.apis.operation.health.{name}", -1.0)
    for name in ("READY_STALL_FACTOR", "LIVE_STALL_FACTOR"):
        monkeypatch.setattr(f"server.apis.operation.health.{name}", 0.0)
    exchange = Exchange("POST", "/generate", chunks=[msgspec.json.encode({"prompt": "x"})])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        for path in PATHS:
            stalled = await ask(app, "GET", path)
            assert (stalled.status, stalled.json["status"]) == (503, "stalled")
            assert "no progress" in stalled.json["reason"]
        assert (await ask(app, "GET", "/health")).status == 200
        engine.step_with(last(engine.added[0].request_id, "x"))
        await exchange.done()
    monkeypatch.undo()
    for path in PATHS:
        assert (await ask(app, "GET", path)).status == 200
