"""KindReport: the result of a profile, as plain data."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["decode", "mixed", "prefill"]
"""Steps of streams alone, of streams and prompts, and of prompts alone."""


class PartTime(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the forward pass: a class of modules, without the modules inside them.

    Or a kind of stages of the call that computes all layers. Mean milliseconds and calls per step,
    and the share of the step. Stages have no calls, but ``waiting_ms``, which is the part of ``ms``
    in which a thread waited for the others. Both are means over the threads. Products and attention
    have rates: bytes of weights, or of keys and values, and two operations a multiplication.
    """

    name: str
    ms: float
    share: float
    calls: float = 0.0
    waiting_ms: float | None = None
    gb_s: float | None = None
    gflop_s: float | None = None


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of a step: mean milliseconds, and the share of the step. The parts add up to it."""

    name: str
    ms: float
    share: float
    parts: tuple[PartTime, ...] = ()


class KindReport(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one kind.

    ``overhead_ms`` is an estimate of what measuring modules adds to a step; the times include it.
    The clocks of stages add some microseconds more. ``waiting_ms`` has a number for each thread of
    the call that computes all layers: how long it waits in a step.
    """

    kind: Kind
    num_steps: int
    step_ms: float
    overhead_ms: float
    num_sequences: float
    num_tokens: float
    stages: tuple[StageTime, ...]
    waiting_ms: tuple[float, ...] = ()
