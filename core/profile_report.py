"""What a profile of an engine's steps says: plain data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

STAGES = (
    "schedule",
    "masks",
    "inputs",
    "forward",
    "sampling",
    "results",
    "commit",
    "delivery",
    "other",
)
"""In order of time. ``masks``: what is prepared for the sampler before the forward pass;
``commit``: tokens appended, text made of them, blocks freed; ``other``: all that is in no stage."""

Kind: TypeAlias = Literal["decode", "prefill"]


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """A stage, or a part of one: mean milliseconds and calls per step, and the share of the step.

    The parts of ``forward`` are kinds of modules, each without the modules inside it.
    """

    name: str
    ms: float
    share: float
    calls: float
    parts: tuple[StageTime, ...] = ()


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one kind: those that only decode, or those that compute prompts too.

    ``overhead_ms`` is an estimate of what measuring adds to a step; it is contained in the times.
    """

    kind: Kind
    num_steps: int
    step_ms: float
    overhead_ms: float
    num_sequences: float
    num_tokens: float
    stages: tuple[StageTime, ...]
