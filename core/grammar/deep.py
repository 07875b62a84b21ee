"""Running what recurses deeply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STACK_BYTES = 256 * 1024 * 1024
"""Address space, of which only what is used costs memory. llguidance goes one level deeper, 8 KiB
or so, with each reference or rule that leads to the next one, and a full stack ends the process."""

_STARTING = threading.Lock()


def on_deep_stack(function: Callable[[], T]) -> T:
    """Call ``function`` on a thread of its own with a large stack; gives or raises what it does."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - it is raised where it belongs
            errors.append(error)

    thread = threading.Thread(target=run, name="grammar-compile", daemon=True)
    with _STARTING:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
