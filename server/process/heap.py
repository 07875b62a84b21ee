"""Garbage collection: hardly ever while a model is loaded, as usual afterwards."""

from __future__ import annotations

import gc

START_THRESHOLD = 10_000_000
"""Allocations between collections during start-up, when nearly all new objects stay alive."""

_USUAL = gc.get_threshold()


def collect_rarely() -> None:
    """Use START_THRESHOLD until ``freeze``. For programs that load a model and then call it."""
    gc.set_threshold(START_THRESHOLD)


def freeze() -> None:
    """Exclude all present objects from collection, and collect as usual from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
