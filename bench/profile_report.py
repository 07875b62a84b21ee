"""KindReport: the result of a profile, as plain data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["decode", "prefill"]


class PartTime(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the forward pass: a class of modules, without the modules inside them.

    Mean milliseconds and calls per step, and the share of the step.
    """

    name: str
    ms: float
    share: float
    calls: float


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of a step: mean milliseconds, and the share of the step. The parts add up to it."""

    name: str
    ms: float
    share: float
    parts: tuple[PartTime, ...] = ()


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one kind: those that only decode, or those that compute prompts too.

    ``overhead_ms`` is an estimate of what measuring adds to a step; the times include it.
    """

    kind: Kind
    num_steps: int
    step_ms: float
    overhead_ms: float
    num_sequences: float
    num_tokens: float
    stages: tuple[StageTime, ...]
