"""Leave out what torch knows about tensors without memory, until something needs it.

torch imports a module with Python code for the operations on such tensors ("meta") and, for that,
its whole library of decompositions: a quarter of the time that importing torch takes. A server that
loads a plain checkpoint onto a CPU needs none of it: what it does on that device is in C++.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

_NAME = "torch._meta_registrations"

_BESIDE = ("_decomp", "_prims", "_refs")
"""Parts of torch that the module imports, and that others reach as attributes of torch."""

_LOCK = threading.RLock()
"""Held while the module is imported: a second thread finds all of it, or none."""

_is_left_out = False
"""Until all of the module is imported. Any thread reads it."""

T = TypeVar("T")


class _StandIn(ModuleType):
    """An empty module. The first use of one of its names imports the original."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked at imports
            raise AttributeError(name)
        restore()
        return getattr(importlib.import_module(self.__name__), name)


class _Finder(MetaPathFinder, Loader):
    """Finds a stand-in for the module, which torch asks for when most of it is imported."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == _NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        """Do what torch needs of what is left out: without it there is no random generator."""
        global _is_left_out  # noqa: PLW0603 - there is one torch in a process
        _is_left_out = True
        sys.meta_path.remove(self)
        torch: Any = sys.modules["torch"]
        for name in _BESIDE:
            if not hasattr(torch, name):
                setattr(torch, name, _StandIn(f"torch.{name}"))
        if hasattr(torch._C, "_set_generator_metaclass"):  # noqa: SLF001 - as torch._prims does
            opaque: Any = importlib.import_module("torch._opaque_base")
            torch._C._set_generator_metaclass(opaque.OpaqueBaseMeta)  # noqa: SLF001


def leave_out() -> None:
    """Let the import of torch leave it out. No effect if torch is imported already."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def restore() -> bool:
    """Import what was left out. Returns whether anything was."""
    global _is_left_out  # noqa: PLW0603 - there is one torch in a process
    with _LOCK:
        if not isinstance(sys.modules.get(_NAME), _StandIn):
            return False
        del sys.modules[_NAME]
        importlib.import_module(_NAME)
        _is_left_out = False
        return True


def restored_if_needed(func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function of torch; again, with what was left out, if the device does not know it.

    Another thread may import that meanwhile.
    """
    was_left_out = _is_left_out
    try:
        return func(*args, **kwargs)
    except NotImplementedError:
        if not was_left_out:
            raise
    restore()
    return func(*args, **kwargs)
