"""import_ahead: import what needs no torch while another thread links torch's library."""

from __future__ import annotations

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
    """Import both. Whatever imports them later finds them."""
    for name in LINKED:
        import_module(name)
    torch_ahead.begin()
    for name in PLAIN:
        import_module(name)
