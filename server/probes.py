"""Probes: whether the process should get requests, and whether it should be restarted."""

from __future__ import annotations

from server.bridge import EngineBridge, State

READY_STALL_SECONDS = 4.0
LIVE_STALL_SECONDS = 120.0
"""Seconds without progress after which a server is not ready, and not alive.

Steps of a large model on a slow machine may take longer. So a step is also given a multiple of the
longest that has ended.
"""

READY_STALL_FACTOR = 2.0
LIVE_STALL_FACTOR = 10.0


def not_ready_reason(bridge: EngineBridge) -> str | None:
    """Why the server should get no requests now, or None. Event loop only."""
    match bridge.state:
        case State.LOADING:
            return "the model is loading"
        case State.DRAINING:
            return "the server is shutting down"
        case State.FAILED:
            return "the engine has failed"
        case State.READY:
            return _stall(bridge, READY_STALL_SECONDS, READY_STALL_FACTOR)


def not_live_reason(bridge: EngineBridge) -> str | None:
    """Why the process should be restarted, or None. Event loop only."""
    if bridge.state is State.FAILED:
        return "the engine has failed"
    if bridge.state is State.LOADING:
        return None
    return _stall(bridge, LIVE_STALL_SECONDS, LIVE_STALL_FACTOR)


def _stall(bridge: EngineBridge, seconds: float, factor: float) -> str | None:
    progress = bridge.progress
    taken = progress.seconds
    if taken <= max(seconds, factor * progress.longest):
        return None
    return f"the engine has made no progress for {taken:.1f} s"
