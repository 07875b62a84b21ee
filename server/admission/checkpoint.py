"""checkpoint: ends a worker's job between two of its stages if nobody waits for its result."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from core.contract.errors import RequestCancelled

is_abandoned: ContextVar[Callable[[], bool] | None] = ContextVar("is_abandoned", default=None)
"""Set by a WorkerPool in the worker thread."""


def is_cancelled() -> bool:
    """Whether the client of the running job has left. False outside of a WorkerPool."""
    check = is_abandoned.get()
    return check is not None and check()


def checkpoint() -> None:
    """Raise RequestCancelled if the client of the running job has left."""
    if is_cancelled():
        raise RequestCancelled
