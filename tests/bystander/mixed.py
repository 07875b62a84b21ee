"""Mixed load: small attacks in random order, and what the server's memory does meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from compat_tests.support.http import Clock
from tests.bystander.arena import Attack
from tests.bystander.footprint import MIB, memory
from tests.bystander.stand import Outcome, Stand

SIZE = 0.05
"""Of the attacks."""

KINDS_EVERY = 5.0
"""Seconds between two looks at all kinds: the system walks all of the server's memory for one."""

NUMBERS = frozenset({"python blocks", "grammars"})
"""What is counted, not measured in bytes."""

NUM_GROWERS = 5

Samples = list[tuple[float, int]]
"""Seconds since the start, and a number."""


class MixedLoad:
    """What was seen while the attacks ran."""

    def __init__(self) -> None:
        self.num_attacks = 0
        self.broken: list[Outcome] = []
        self._resident: Samples = []
        self._kinds: dict[str, Samples] = {}
        self._runs: Counter[str] = Counter()
        self._growth: Counter[str] = Counter()

    def ran(self, outcome: Outcome, seconds: float, resident: int) -> None:
        """An attack has ended, and the server's memory afterwards is ``resident``."""
        self.num_attacks += 1
        self._runs[outcome.name] += 1
        if outcome.broken:
            self.broken.append(outcome)
        if self._resident:
            self._growth[outcome.name] += resident - self._resident[-1][1]
        self._resident.append((seconds, resident))

    def saw(self, kinds: dict[str, int], seconds: float) -> None:
        for kind, number in kinds.items():
            self._kinds.setdefault(kind, []).append((seconds, number))

    def row(self) -> dict[str, str]:
        slope = slope_of(second_half(self._resident)) / MIB
        return {
            "attacks": str(self.num_attacks),
            "that broke a bar": str(len(self.broken)),
            "memory at the end": f"{self._resident[-1][1] / MIB:.0f} MiB",
            "slope, second half": f"{slope:+.1f} MiB a minute",
        }

    def kinds(self) -> list[dict[str, str]]:
        """A row for each kind of memory, and for what the server holds."""
        return [kind_row(kind, samples) for kind, samples in self._kinds.items()]

    def growers(self) -> list[dict[str, str]]:
        return [
            {
                "attack": name,
                "times": str(self._runs[name]),
                "growth, together": f"{growth / MIB:.0f} MiB",
            }
            for name, growth in self._growth.most_common(NUM_GROWERS)
        ]


def mixed_load(stand: Stand, attacks: Sequence[Attack], *, seconds: float, seed: int) -> MixedLoad:
    """Run small attacks for so long."""
    dice, load, clock = random.Random(seed), MixedLoad(), Clock()
    stand.size, size = SIZE, stand.size
    seen_at = -KINDS_EVERY
    try:
        while clock.seconds < seconds:
            outcome = stand.run(dice.choice(attacks), calm_seconds=1, num_tries=1)
            load.ran(outcome, clock.seconds, memory(stand.server.pid))
            if clock.seconds - seen_at >= KINDS_EVERY:
                seen_at = clock.seconds
                load.saw(stand.kinds(), seen_at)
    finally:
        stand.size = size
    return load


def kind_row(kind: str, samples: Samples) -> dict[str, str]:
    half = second_half(samples)
    unit, name = (1, "") if kind in NUMBERS else (MIB, " MiB")
    return {
        "kind": kind,
        "at first": f"{samples[0][1] / unit:.0f}{name}",
        "at half": f"{half[0][1] / unit:.0f}{name}",
        "at the end": f"{half[-1][1] / unit:.0f}{name}",
        "slope, second half": f"{slope_of(half) / unit:+.1f}{name} a minute",
    }


def second_half(samples: Samples) -> Samples:
    return samples[len(samples) // 2 :]


def slope_of(samples: Samples) -> float:
    """Least squares, a minute."""
    times = [seconds / 60 for seconds, _ in samples]
    middle = sum(times) / len(times)
    spread = sum((time - middle) ** 2 for time in times)
    products = ((time - middle) * n for time, (_, n) in zip(times, samples, strict=True))
    return sum(products) / spread if spread else 0.0
