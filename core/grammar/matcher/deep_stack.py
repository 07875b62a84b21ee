"""Run deeply recursive code on a large stack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STACK_BYTES = 256 * 1024 * 1024
"""Address space; only used pages cost memory. llguidance recurses, with frames of about 8 KiB, for
each reference or rule that leads to another one, and a stack overflow kills the process."""

_STARTING = threading.Lock()


def on_deep_stack(function: Callable[[], T]) -> T:
    """Call ``function`` on its own thread with a large stack; return or raise its result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="grammar-compile", daemon=True)
    with _STARTING:
        default = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(default)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
