"""PerRequest: what a processor makes once of a request's parameter and uses in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class PerRequest(Generic[V]):
    """Values made of objects, by identity, while the objects are in the batch.

    The choices of a request share their parameters' objects, so they share the value. What is not
    asked for in a step is dropped, so memory never exceeds one batch.
    """

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make = make
        self._kept: dict[int, tuple[object, V]] = {}

    def of(self, sources: Iterable[object]) -> list[V]:
        """Return the value of each object, made now if it is new."""
        earlier, self._kept = self._kept, {}
        values = []
        for source in sources:
            key = id(source)  # no other object has it, because the entry keeps `source` alive
            entry = self._kept.get(key) or earlier.get(key)
            if entry is None:
                entry = (source, self._make(source))
            self._kept[key] = entry
            values.append(entry[1])
        return values
