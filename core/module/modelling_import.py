"""Import transformers' modelling code without the parts that a server does not use.

Its modules import distributed training, flex attention and torch's compiler, which are most of the
time of a start. transformers runs without each of them: it asks functions of its own whether a
package is there. While the modelling code is imported, these functions say no.

Its modules, and a few of torch's functions, mark others for torch's compiler, and import it for
that. A stand-in takes its place, which ignores such marks. For anything else it is replaced by the
original, so torch.compile works, and so do the masks of a few families that use a part of it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch  # noqa: F401 - stand-ins must not be there while torch itself is imported

from core.module.kept_listing import kept
from core.system import torch_import
from core.system.private_names import COMPILER, COMPILER_MASKS

_UNUSED = (
    "is_scipy_available",
    "is_sklearn_available",
    "is_torch_distributed_available",
    "is_torch_flex_attn_available",
)
"""Functions of transformers.utils that say whether a package can be imported."""

_MARKS = ("allow_in_graph", "assume_constant_result", "disable")
"""Functions of the compiler that mark other functions for it."""

_MASK_CLASS = "TransformGetItemToIndex"
"""Class that functions of masks use without a compilation."""

_LISTER = "transformers.utils.import_utils"

_MODULES = (
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
)


def import_modelling() -> None:
    """Import it, unless it has been imported already, by any code. Core thread."""
    if _MODULES[0] in sys.modules:
        return
    if "transformers" not in sys.modules:
        with _listed_once():
            importlib.import_module("transformers.models")
    _put_stand_ins()
    with _without_unused_packages():
        for name in _MODULES:
            importlib.import_module(name)


@contextlib.contextmanager
def _listed_once() -> Iterator[None]:
    """Let transformers read the files of its families once, quickly, and not at every start.

    It lists the names that they export, from the text of more than a thousand files, each time one
    of three modules is imported.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the module with transformers' lister; its loader replaces two functions."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _LISTER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        names: dict[str, Any] = module.__dict__
        if "fetch__all__" in names:
            names["fetch__all__"] = _on_the_end(names["fetch__all__"])
        if "create_import_structure_from_path" in names:
            families = str(Path(self.path).parent.parent / "models")
            names["create_import_structure_from_path"] = _by_folder(
                kept(names["create_import_structure_from_path"], families, [self.path, __file__])
            )


def _on_the_end(fetch: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Give a function that looks for the last ``__all__`` only the text from there."""

    def fetch_quickly(text: str) -> list[str]:
        start = text.rfind("\n__all__")
        return fetch(text[start + 1 :])

    return fetch_quickly


def _by_folder(create: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Call a function that caches by path, for a file or its folder, with the folder's path."""

    def create_once(path: Any) -> Any:
        path = Path(path)
        return create(str(path.parent if path.is_file() else path))

    return create_once


@contextlib.contextmanager
def _without_unused_packages() -> Iterator[None]:
    """Let transformers find none of the packages of ``_UNUSED``."""
    from transformers import utils  # noqa: PLC0415 - slow to import
    from transformers.utils import import_utils  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        for module in (utils, import_utils):
            for name in _UNUSED:
                if hasattr(module, name):
                    stack.enter_context(_replaced(module, name, lambda: False))
        yield


def _put_stand_ins() -> None:
    """Put stand-ins in the place of the parts of torch's compiler that were not imported."""
    for name, names in (
        (COMPILER, dict.fromkeys(_MARKS, _unmarked)),
        (COMPILER_MASKS, {_MASK_CLASS: _mask_class}),
    ):
        if name not in sys.modules:
            sys.modules[name] = _StandIn(name, names)


class _StandIn(ModuleType):
    """A module with a few names. Any other name is the original module's."""

    def __init__(self, name: str, names: dict[str, Callable[..., Any]]) -> None:
        super().__init__(name)
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name == "__file__":  # asked of all modules to find the module of a frame
            raise AttributeError(name)
        if name == "__path__" and self.__name__ != COMPILER:  # asked at every import
            raise AttributeError(name)
        return _original(self.__name__, name)


def _original(module: str, name: str) -> Any:
    """Return the attribute of the original module, which takes the place of its stand-in."""
    torch_import.restore()  # a compiler asks for the results of operations on "meta"
    if isinstance(sys.modules.get(module), _StandIn):
        del sys.modules[module]
    return getattr(importlib.import_module(module), name)


def _mask_class() -> Any:
    """Replacement of the class of ``COMPILER_MASKS``."""
    return _original(COMPILER_MASKS, _MASK_CLASS)()


def _unmarked(function: Any = None, *_values: Any, **_options: Any) -> Any:
    """Replacement of a decorator with or without options: leaves the function as it is."""
    return _unmarked if function is None else function


@contextlib.contextmanager
def _replaced(module: ModuleType, name: str, value: Callable[..., Any]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)
