"""Waiting for something to become true, with a deadline."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds within which what must happen happens, however busy the machine is."""

_never = threading.Event()


def pause(seconds: float) -> None:
    """Let time pass where time itself is what is measured."""
    _never.wait(seconds)


def in_tries(check: Callable[[], None], num_tries: int = 4) -> None:
    """Call ``check`` until it raises no AssertionError; the last one counts.

    For the order of moments, which a machine that stops for a while can break.
    """
    for _ in range(num_tries - 1):
        try:
            return check()
        except AssertionError:
            continue
    return check()


def eventually(
    probe: Callable[[], T], *, timeout: float = PATIENCE, interval: float = 0.01, what: str = ""
) -> T:
    """Return the first true value of ``probe``; fail when there is none within ``timeout``."""
    deadline = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{what or 'it'} did not happen within {timeout} s; last: {value!r}"
            )
        pause(interval)
