"""RoutedModel: what a router knows of one model."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from server.router.config.config import RoutedModelConfig
from server.router.config.policy import ModelSlot, ModelState
from server.router.upstreams.child import Child
from server.router.upstreams.upstream import Upstream


@dataclass(slots=True, eq=False)
class RoutedModel:
    """Event loop only. ``slot`` is None if its servers run already, elsewhere."""

    name: str
    config: RoutedModelConfig
    api_key: str | None
    slot: ModelSlot | None
    upstreams: list[Upstream]
    """Equal servers. Of a model whose process the router starts: one while it is ready."""
    child: Child | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    num_inside: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    load_seconds: float = 1.0
    """How long the last load took."""
    failure: str = ""
    """Why the last load failed; empty if it did not."""
    num_failures: int = 0
    """Loads in a row that have failed."""

    @property
    def state(self) -> ModelState:
        return ModelState.READY if self.slot is None else self.slot.state

    @property
    def is_ready(self) -> bool:
        return self.state is ModelState.READY

    @property
    def name_there(self) -> str | None:
        """The name that its servers know; None: they know all of its names."""
        if self.config.serve is not None and self.config.model is None:
            return None
        return self.config.model or self.name
