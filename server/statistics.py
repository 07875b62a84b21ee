"""statistics: the numbers of GET /stats."""

from __future__ import annotations

import msgspec

from schemas.stats import AdmissionStats, PathStats, ServerStats
from server.serving import Serving


def statistics(serving: Serving) -> ServerStats:
    """The engine's counters after its last step, and the server's own now."""
    return ServerStats(
        **msgspec.structs.asdict(serving.bridge.stats),
        num_refused=serving.admission.num_refused,
        event_loop=serving.stalls.stats,
        admission=_admission(serving),
        model_path=_path(serving),
    )


def _path(serving: Serving) -> PathStats | None:
    model = serving.loaded_model
    return None if model is None else PathStats(**msgspec.structs.asdict(model.info.path))


def _admission(serving: Serving) -> AdmissionStats:
    admission, pools = serving.admission, serving.pools.all
    return AdmissionStats(
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
    )
