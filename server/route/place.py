"""Place: one request's way to a model."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from server.route.fleet import Fleet
from server.route.model import Model


class Place:
    """Waiting for a model, then inside. Event loop only."""

    def __init__(self, fleet: Fleet, model: Model, tenant: str) -> None:
        self._fleet, self._model, self._tenant = fleet, model, tenant
        self._in_line = False
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        """Raises QueueFull, or APIError if the model cannot be loaded at the moment."""
        if not self._model.is_ready:
            self._fleet.line.take(self._tenant, 1)
            self._in_line = True
        try:
            self._future = self._fleet.join(self._model)
        except BaseException:
            self._leave_line()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._future is not None
        self._leave_line()
        self._fleet.leave(self._model, self._future)

    async def wait(self, seconds: float) -> bool:
        """Wait for the model, so long at most. Whether it is there. Raises APIError."""
        assert self._future is not None
        if not self._future.done():
            await asyncio.wait({self._future}, timeout=seconds)
        if not self._future.done():
            return False
        self._leave_line()
        self._future.result()
        return True

    def _leave_line(self) -> None:
        if self._in_line:
            self._in_line = False
            self._fleet.line.give_back(self._tenant, 1)
