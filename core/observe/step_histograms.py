"""StepHistograms: the distributions that an engine counts once per step."""

from __future__ import annotations

from collections.abc import Iterable

from core.observe.histogram import GAP_SECONDS, POWERS, SECONDS, Histogram


class StepHistograms:
    """Of an engine's steps. The core thread observes, any thread reads.

    Only steps that computed something count. ``stages`` are the seconds of each stage of a step,
    ``step`` is their sum. ``inter_token`` are the seconds between two tokens of a sequence.
    """

    __slots__ = ("inter_token", "num_sequences", "num_tokens", "stages", "step")

    def __init__(self, stages: Iterable[str]) -> None:
        self.stages = {stage: Histogram(SECONDS) for stage in stages}
        self.step = Histogram(SECONDS)
        self.num_sequences = Histogram(POWERS)
        self.num_tokens = Histogram(POWERS)
        self.inter_token = Histogram(GAP_SECONDS)
