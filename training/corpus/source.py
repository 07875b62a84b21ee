"""The seeded random source of every generator; it separates training and held-out text."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Source(Random):
    """The random source of the training text."""

    held_out = False

    def phrase(self, options: Sequence[T]) -> T:
        """A random phrasing. The last one is reserved for the held-out text."""
        return options[-1] if self.held_out else self.choice(options[:-1])

    def chance(self, probability: float) -> bool:
        return self.random() < probability


class HeldOutSource(Source):
    """The random source of the held-out text."""

    held_out = True
