"""Import torch without what it knows about tensors without memory, until something needs that.

torch imports a module with Python code for the operations on such tensors ("meta") and, for that,
its whole library of decompositions: a quarter of the time that importing torch takes. A server that
loads a plain checkpoint onto a CPU needs none of it: what it does on that device is in C++.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from core.system.private_names import META_PARTS, META_REGISTRATIONS, set_generator_metaclass

_GPU_LIBRARIES = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_xpu.so")

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
        return ModuleSpec(name, self) if name == META_REGISTRATIONS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, _module: ModuleType) -> None:
        """Do what torch needs of what is left out: without it there is no random generator."""
        global _is_left_out  # noqa: PLW0603 - there is one torch in a process
        _is_left_out = True
        sys.meta_path.remove(self)
        torch: Any = sys.modules["torch"]
        for module in META_PARTS:
            name = module.removeprefix("torch.")
            if not hasattr(torch, name):
                setattr(torch, name, _StandIn(module))
        set_generator_metaclass(torch)


def import_torch() -> None:
    """Import torch, on Linux without that module if it is a torch for CPUs."""
    if sys.platform.startswith("linux") and _is_for_cpus():
        leave_out()
    importlib.import_module("torch")


def _is_for_cpus() -> bool:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent / "lib"
    return not any((folder / name).exists() for name in _GPU_LIBRARIES)


def leave_out() -> None:
    """Let the import of torch leave it out. No effect if torch is imported already."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def restore() -> bool:
    """Import what was left out. Returns whether anything was."""
    global _is_left_out  # noqa: PLW0603 - there is one torch in a process
    with _LOCK:
        if not isinstance(sys.modules.get(META_REGISTRATIONS), _StandIn):
            return False
        del sys.modules[META_REGISTRATIONS]
        importlib.import_module(META_REGISTRATIONS)
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
