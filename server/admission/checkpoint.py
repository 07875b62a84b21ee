"""checkpoint: ends a worker's job between two of its stages if nobody waits for its result."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


class Abandoned(Exception):
    """The client of this job has left. Its result is dropped."""


is_abandoned: ContextVar[Callable[[], bool] | None] = ContextVar("is_abandoned", default=None)
"""Set by a Lane in the worker thread."""


def checkpoint() -> None:
    """Raise Abandoned if the client of the running job has left. Outside of a Lane: nothing."""
    check = is_abandoned.get()
    if check is not None and check():
        raise Abandoned
