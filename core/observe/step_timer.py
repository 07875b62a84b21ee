"""StepTimer: where the time of the engine's steps goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from core.observe.histogram import StepHistograms
from core.system.hand_over import HandOver

Stage: TypeAlias = Literal[
    "schedule", "masks", "inputs", "forward", "sampling", "results", "commit", "delivery"
]

STAGES: tuple[Stage, ...] = get_args(Stage)
"""In order of time. ``masks`` is the sampler's work before the forward pass, ``results`` waits for
the sampled tokens, ``commit`` appends them, decodes text and frees blocks, and ``delivery`` hands
the outputs to their consumer."""


class StepTimer:
    """Sums the time of each stage over all steps, and counts the steps by their times.

    Core thread only, except ``seconds`` and ``histograms``. It is always on: a stage costs one
    reading of the clock, a step one count per stage. Times are those of the host: on CUDA the
    device computes a step while the host is in later stages.
    """

    __slots__ = (
        "_before",
        "_computed",
        "_last",
        "_start",
        "clock",
        "hand_over",
        "histograms",
        "nanoseconds",
    )

    def __init__(self) -> None:
        self.clock: Callable[[], int] = time.perf_counter_ns
        """Nanoseconds. A profile replaces it to wait for the device first."""
        self.nanoseconds: dict[Stage, int] = dict.fromkeys(STAGES, 0)
        self.hand_over = HandOver()
        """Keeps the outputs of a step until the stage of the next one that computes."""
        self.histograms = StepHistograms(STAGES)
        """Of the steps that computed something. Any thread reads."""
        self._start = self._last = 0
        self._before = dict(self.nanoseconds)  # at the end of the step before
        self._computed = False

    def start(self) -> None:
        """Begin a step: the time since the last lap belongs to no stage."""
        self._start = self._last = self.clock()

    @property
    def step_seconds(self) -> float:
        """Seconds from the start of the step to its last lap."""
        return (self._last - self._start) / 1e9

    @property
    def now(self) -> int:
        """Nanoseconds of the clock at the last lap."""
        return self._last

    def computed(self, num_sequences: int, num_tokens: int) -> None:
        """The step, or a part of it, computed so many tokens of so many sequences."""
        self.histograms.num_sequences.observe(num_sequences)
        self.histograms.num_tokens.observe(num_tokens)
        self._computed = True

    def end(self) -> None:
        """The outputs of the step were handed over: count its stages, if it computed anything."""
        self.lap("delivery")
        if self._computed:
            self._computed = False
            nanoseconds, before, total = self.nanoseconds, self._before, 0
            for stage, histogram in zip(STAGES, self.histograms.stages.values(), strict=True):
                spent = nanoseconds[stage] - before[stage]
                total += spent
                histogram.observe(spent / 1e9)
            self.histograms.step.observe(total / 1e9)
        self._before.update(self.nanoseconds)

    def lap(self, stage: Stage) -> None:
        """Charge the time since the last call to ``stage``."""
        now = self.clock()
        self.nanoseconds[stage] += now - self._last
        self._last = now

    def seconds(self) -> dict[Stage, float]:
        """Seconds of every stage so far. Any thread."""
        return {stage: self.nanoseconds[stage] / 1e9 for stage in STAGES}


class Progress:
    """Says how long the current work of the core thread has taken.

    The core thread writes, any thread reads. Each field is assigned in one operation.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        self._start: float | None = None
        self.longest = 0.0
        """Seconds of the longest work that has ended."""

    def begin(self) -> None:
        """Work begins; earlier work has ended."""
        now = self._clock()
        if self._start is not None:
            self.longest = max(self.longest, now - self._start)
        self._start = now

    def end(self) -> None:
        """The thread waits for work."""
        self.begin()
        self._start = None

    @property
    def seconds(self) -> float:
        """Seconds since the current work began; 0 if there is none."""
        start = self._start
        return 0.0 if start is None else self._clock() - start
