"""Probes: whether the process should get requests, and whether it should be restarted."""

from __future__ import annotations

import msgspec

from schemas.health import HealthResponse
from schemas.stats import AdmissionStats, PathStats, ServerStats
from server.bridge.bridge import BridgeState, EngineBridge
from server.generation.serving import Serving

READY_STALL_SECONDS = 4.0
LIVE_STALL_SECONDS = 120.0
"""Seconds without progress after which a server is not ready, and not alive.

A step of a large model on a slow machine may take longer, so a step is also given a multiple of the
longest that has ended.
"""

READY_STALL_FACTOR = 2.0
LIVE_STALL_FACTOR = 10.0

_REASONS = {
    BridgeState.LOADING: "The model is loading.",
    BridgeState.DRAINING: "The server is shutting down.",
    BridgeState.FAILED: "The engine has failed.",
}


def readiness(bridge: EngineBridge) -> HealthResponse:
    """Whether the server should get requests now. Event loop only."""
    return _probe(bridge, set(_REASONS), READY_STALL_SECONDS, READY_STALL_FACTOR)


def liveness(bridge: EngineBridge) -> HealthResponse:
    """Whether the process works, also if it is loading or draining. Event loop only."""
    return _probe(bridge, {BridgeState.FAILED}, LIVE_STALL_SECONDS, LIVE_STALL_FACTOR)


def _probe(
    bridge: EngineBridge, bad_states: set[BridgeState], seconds: float, factor: float
) -> HealthResponse:
    state, taken, longest = bridge.state, bridge.progress.seconds, bridge.progress.longest
    if state in bad_states:
        return HealthResponse(status=state.value, reason=_REASONS[state])
    if taken <= max(seconds, factor * longest):
        return HealthResponse(status="ok")
    reason = f"The engine has made no progress for {taken:.1f} s; its longest step took "
    return HealthResponse(status="stalled", reason=f"{reason}{longest:.1f} s.")


def statistics(serving: Serving) -> ServerStats:
    """The numbers of GET /stats: the engine's after its last step, the server's own now."""
    admission, pools, model = serving.admission, serving.pools.all, serving.loaded_model
    return ServerStats(
        **msgspec.structs.asdict(serving.bridge.stats),
        num_refused=admission.num_refused,
        event_loop=serving.stalls.stats,
        admission=AdmissionStats(
            num_tickets=admission.num_tickets,
            num_choices=admission.choices.held,
            num_body_bytes=admission.body_bytes.held,
            num_held_bytes=admission.memory.held,
            num_prompt_tokens=admission.prompt_tokens.held,
            num_output_tokens=admission.output_tokens.held,
            num_compilations=admission.compilations.held,
            num_waiting_jobs=sum(pool.num_waiting for pool in pools),
            num_running_jobs=sum(pool.num_running for pool in pools),
            num_abandoned_jobs=sum(pool.num_abandoned for pool in pools),
        ),
        model_path=None if model is None else PathStats(**msgspec.structs.asdict(model.info.path)),
    )
