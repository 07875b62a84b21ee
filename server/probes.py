"""Probes: whether the process should get requests, and whether it should be restarted."""

from __future__ import annotations

from schemas.health import HealthResponse
from server.bridge import EngineBridge, State

READY_STALL_SECONDS = 4.0
LIVE_STALL_SECONDS = 120.0
"""Seconds without progress after which a server is not ready, and not alive.

A step of a large model on a slow machine may take longer, so a step is also given a multiple of the
longest that has ended.
"""

READY_STALL_FACTOR = 2.0
LIVE_STALL_FACTOR = 10.0

_REASONS = {
    State.LOADING: "The model is loading.",
    State.DRAINING: "The server is shutting down.",
    State.FAILED: "The engine has failed.",
}


def readiness(bridge: EngineBridge) -> HealthResponse:
    """Whether the server should get requests now. Event loop only."""
    if bridge.state in _REASONS:
        return _state(bridge)
    return _progress(bridge, READY_STALL_SECONDS, READY_STALL_FACTOR)


def liveness(bridge: EngineBridge) -> HealthResponse:
    """Whether the process works, also if it is loading or draining. Event loop only."""
    if bridge.state is State.FAILED:
        return _state(bridge)
    return _progress(bridge, LIVE_STALL_SECONDS, LIVE_STALL_FACTOR)


def _state(bridge: EngineBridge) -> HealthResponse:
    return HealthResponse(status=bridge.state.value, reason=_REASONS[bridge.state])


def _progress(bridge: EngineBridge, seconds: float, factor: float) -> HealthResponse:
    taken, longest = bridge.progress.seconds, bridge.progress.longest
    if taken <= max(seconds, factor * longest):
        return HealthResponse(status="ok")
    reason = f"The engine has made no progress for {taken:.1f} s; its longest step took "
    return HealthResponse(status="stalled", reason=f"{reason}{longest:.1f} s.")
