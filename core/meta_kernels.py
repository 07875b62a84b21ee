"""Leave out what torch knows about tensors without memory, until something needs it.

torch imports a module with Python code for the operations on such tensors ("meta") and, for that,
its whole library of decompositions: a quarter of the time that importing torch takes. A server that
loads a plain checkpoint onto a CPU needs none of it: what it does on that device is in C++.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

_NAME = "torch._meta_registrations"

T = TypeVar("T")


class _StandIn(ModuleType):
    """An empty module. Whoever wants a name of the original gets it, and the original is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked at imports
            raise AttributeError(name)
        restore()
        return getattr(sys.modules[_NAME], name)


def leave_out() -> None:
    """Let the import of torch leave it out. No effect if torch is imported already."""
    if "torch" not in sys.modules:
        sys.modules[_NAME] = _StandIn(_NAME)


def restore() -> bool:
    """Import what was left out. Returns whether anything was."""
    if not isinstance(sys.modules.get(_NAME), _StandIn):
        return False
    del sys.modules[_NAME]
    vars(sys.modules["torch"])["_meta_registrations"] = importlib.import_module(_NAME)
    return True


def restored_if_needed(func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function of torch; again, with what was left out, if the device does not know it."""
    try:
        return func(*args, **kwargs)
    except NotImplementedError:
        if not restore():
            raise
    return func(*args, **kwargs)
