"""The garbage collector, told when there is garbage to find."""

from __future__ import annotations

import gc

START_THRESHOLD = 100_000
"""New objects between two looks at the heap during start-up: of the half a million that it makes
nearly all stay, and looking as often as usual takes a tenth of its time."""

_USUAL = gc.get_threshold()


def grow() -> None:
    """From now on the heap fills with what stays: look for garbage rarely."""
    gc.set_threshold(START_THRESHOLD)


def settle() -> None:
    """What there is stays: it is never looked at again, and what comes from now on as usual."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
