"""Serving: what handlers share, and how they ask for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from litestar import Request
from litestar.di import NamedDependency

from server.admission.admission import Admission, Ticket
from server.admission.control import ticket_of
from server.bridge.bridge import EngineBridge
from server.generation.model import ServedModel
from server.generation.trimmer import Trimmer
from server.http.apis import api_at
from server.http.errors import APIError
from server.observe.log import RequestLog
from server.observe.stalls import StallWatch
from server.settings.settings import Settings
from server.workers.pools import WorkerPools


@dataclass(slots=True)
class Serving:
    """The settings, the bridge and the loaded model. ``created`` is in Unix seconds.

    Event loop only, except ``loaded_model``: the core thread sets it before it reports Ready.
    """

    settings: Settings
    bridge: EngineBridge
    admission: Admission
    pools: WorkerPools
    stalls: StallWatch
    created: int
    records: RequestLog
    loaded_model: ServedModel | None = None
    trimmer: Trimmer = field(default_factory=Trimmer)

    @classmethod
    def of(cls, settings: Settings, bridge: EngineBridge) -> Serving:
        """Create the parts for these settings. Call it on the running event loop."""
        return cls(
            settings=settings,
            bridge=bridge,
            admission=Admission(settings),
            pools=WorkerPools(settings.tokenizer_workers),
            stalls=StallWatch(asyncio.get_running_loop()),
            created=int(time.time()),
            records=RequestLog(settings.model_name, settings.request_log),
        )

    @property
    def model(self) -> ServedModel:
        """The model. Until the bridge accepts work it may not be loaded."""
        assert self.loaded_model is not None
        return self.loaded_model

    def check_model(self, name: str) -> None:
        """Raise APIError if a request names another model."""
        names = self.settings.served_model_names
        if name not in names and not self.settings.accept_any_model_name:
            served = "', '".join(names)
            raise APIError(
                404,
                f"The model '{name}' does not exist; this server has '{served}'.",
                code="model_not_found",
            )


AnyRequest: TypeAlias = Request[Any, Any, Any]
ServingDep: TypeAlias = NamedDependency[Serving]
"""The types of handlers' parameters ``request`` and ``serving``."""


def admitted(request: AnyRequest, model_name: str | None) -> tuple[Serving, Ticket]:
    """The ``Serving`` of a request for this model, and the request's ticket.

    Raises Unavailable if the server takes no new work, APIError if it has another model.
    """
    serving: Serving = request.app.state.serving
    serving.bridge.check_accepting()
    if model_name is not None:
        tag = api_at(request.scope["path"]).model_tag
        serving.check_model(model_name.removesuffix(tag))
    return serving, ticket_of(request.scope)
