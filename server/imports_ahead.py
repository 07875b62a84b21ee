"""import_ahead: import what needs no torch while another thread links torch's library."""

from __future__ import annotations

import contextlib
from importlib import import_module

from core import torch_ahead

LINKED = (
    *("array", "asyncio", "binascii", "bz2", "csv", "fcntl", "hashlib", "heapq", "lzma", "select"),
    *("ssl", "zlib", "multidict", "yaml"),
)
"""Modules that load libraries, for which they would wait for the linker."""

PLAIN = ("litestar",)
"""Modules of Python code only, once those that it needs are there."""


def import_ahead() -> None:
    """Import both, but for what this Python lacks: it may not be needed."""
    _import(LINKED)
    torch_ahead.begin()
    _import(PLAIN)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)
