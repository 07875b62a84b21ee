"""Serving: what handlers share, and how they ask for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TypeAlias

from litestar.di import NamedDependency

from server.admission.admission import Admission, Ticket
from server.bridge.bridge import EngineBridge
from server.generation.model import ServedModel
from server.generation.trimmer import Trimmer
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
        """What belongs to these settings, created now on the running event loop."""
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
        """The model. Call ``check_accepting`` first: until then it may not be loaded."""
        assert self.loaded_model is not None
        return self.loaded_model

    def check_accepting(self, model_name: str | None = None) -> None:
        """Raise Unavailable if the server takes no new work, APIError for an unknown model."""
        self.bridge.check_accepting()
        self.check_model(model_name)

    def check_model(self, name: str | None) -> None:
        """Raise APIError if a request names another model. None means the served model."""
        settings = self.settings
        if name is None or settings.accept_any_model_name:
            return
        if name not in settings.served_model_names:
            served = "', '".join(settings.served_model_names)
            raise APIError(
                404,
                f"The model '{name}' does not exist; this server has '{served}'.",
                code="model_not_found",
            )


ServingDep: TypeAlias = NamedDependency[Serving]
TicketDep: TypeAlias = NamedDependency[Ticket]
"""The types of handlers' parameters ``serving`` and ``ticket``."""
