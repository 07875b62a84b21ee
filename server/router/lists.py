"""What the router says of its models: lists, and counters."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

from schemas.models import Model as ModelCard
from schemas.ollama_answer import LocalModel, ModelDetails
from schemas.route import RoutedModelStats, RouterStats, UpstreamStats
from server.router.routing import Routing
from server.router.upstreams.model import RoutedModel

_NO_DETAILS = ModelDetails(format="", family="", families=[], quantization_level="")


def model_cards(routing: Routing, names: Iterable[str]) -> list[ModelCard]:
    """Entries of /v1/models. ``root`` is the model that an alias stands for."""
    return [
        ModelCard(id=name, created=routing.created, owned_by="roseinfer", root=routing.names[name])
        for name in names
    ]


def local_models(routing: Routing, *, only_ready: bool) -> list[LocalModel]:
    """Entries of /api/tags, or of /api/ps. What only the models' servers know is empty."""
    time = datetime.fromtimestamp(routing.created, UTC).isoformat().replace("+00:00", "Z")
    return [
        LocalModel(
            name=name,
            model=name,
            modified_at=time,
            digest=hashlib.sha256(name.encode()).hexdigest(),
            details=_NO_DETAILS,
        )
        for name, model in routing.fleet.models.items()
        if model.is_ready or not only_ready
    ]


def statistics(routing: Routing) -> RouterStats:
    """All counters."""
    models = {name: _model_stats(model) for name, model in routing.fleet.models.items()}
    return RouterStats(
        num_open=routing.traffic.num_open,
        num_waiting=routing.fleet.line.held,
        event_loop=routing.stalls.stats,
        models=models,
    )


def _model_stats(model: RoutedModel) -> RoutedModelStats:
    counts, now = model.counts, asyncio.get_running_loop().time()
    return RoutedModelStats(
        state=model.state.value,
        num_running=model.num_inside,
        num_waiting=len(model.waiting),
        num_requests=counts["requests"],
        num_answers=counts["answers"],
        num_cut=counts["cut"],
        num_refused=counts["refused"],
        num_retries=counts["retries"],
        num_failed=counts["failed"],
        num_pieces=counts["pieces"],
        num_loads=counts["loads"],
        num_unloads=counts["unloads"],
        num_failed_loads=counts["failed_loads"],
        num_crashes=counts["crashes"],
        last_load_seconds=round(model.load_seconds, 3) if counts["loads"] else 0.0,
        failure=model.failure,
        servers=[
            UpstreamStats(
                address=upstream.address.text,
                num_running=upstream.num_open,
                is_available=upstream.is_available(now),
            )
            for upstream in model.upstreams
        ],
    )
