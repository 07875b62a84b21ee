"""import_ahead: import what needs no torch while a thread links torch's library, then torch."""

from __future__ import annotations

import contextlib
from importlib import import_module

from core import torch_ahead
from core.contract.config import ModelConfig
from core.weights_ahead import touch_ahead

LINKED = (
    *("array", "asyncio", "binascii", "bz2", "csv", "fcntl", "hashlib", "heapq", "lzma", "select"),
    *("ssl", "zlib", "multidict", "yaml"),
    *("httptools", "llguidance", "multiprocessing.connection", "numpy", "queue", "unicodedata"),
    "watchfiles",  # which uvicorn imports where it is installed
)
"""Modules that load libraries, for which they would wait for the linker."""

PLAIN = ("litestar", "server.app.routes")
"""Modules of Python code only, once those that it needs are there."""


def import_ahead(model: ModelConfig | None = None) -> None:
    """Import all that, but for what this Python lacks: it may not be needed.

    Memory for the weights of ``model`` is touched from then on.
    """
    _import(LINKED)
    torch_ahead.begin()
    _import(PLAIN)
    if model is not None:
        touch_ahead(model)
    torch_ahead.import_torch()


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)
