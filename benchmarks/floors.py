"""The least time in which a machine can do a scenario: a floor that no server gets under.

Every step reads all weights once, and the keys and values of each sequence's context once (those of
a shared prefix once for all). Every token costs two operations for each matrix element and four for
each element of a query's head and token attended to; the head's matrix works only where a token is
sampled. So, for any piece of work,

    floor = max(bytes / read bandwidth, operations / operation rate)

with the bandwidth and the rate that were measured on the machine in the same run, all threads.
A scenario's bytes are those of the fewest steps it can be done in (as many requests together as
there are, prompts computed in the steps in which others decode); its operations do not depend on
the steps. An open load cannot end before its last request has come and been answered alone.

Left out, so that real servers need more: norms, activations, sampling, writing the cache, reading
and writing activations, tokenizing, HTTP. A last-level cache that holds a part of the weights from
step to step could beat the floor by that part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scenarios import Scenario
from benchmarks.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``read_rate`` in bytes a second, ``operation_rate`` in operations a second."""

    read_rate: float
    operation_rate: float


@dataclass(frozen=True)
class Work:
    """Bytes to be read and operations to be done."""

    num_bytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.num_bytes + other.num_bytes, self.operations + other.operations)

    def __mul__(self, times: float) -> Work:
        return Work(self.num_bytes * times, self.operations * times)

    def seconds(self, machine: Machine) -> float:
        """The least time this takes."""
        return max(self.num_bytes / machine.read_rate, self.operations / machine.operation_rate)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a model's work is made of. ``weight_bytes`` and ``kv_bytes`` are sizes of an element."""

    shape: Shape
    weight_bytes: float
    kv_bytes: float

    def weights(self) -> Work:
        """Reading every matrix once."""
        return Work(self.weight_bytes * (self.shape.layer_params + self.shape.head_params))

    def decode(self, batch: int, context: float, shared: float = 0.0) -> Work:
        """One step of ``batch`` sequences, but for reading the weights.

        Each attends to ``context`` tokens of its own and to ``shared`` ones, the same for all.
        """
        shape = self.shape
        matrices = 2.0 * batch * (shape.layer_params + shape.head_params)
        attention = batch * (context + shared) * shape.attention_flops
        read = (batch * context + shared) * shape.kv_elements * self.kv_bytes
        return Work(read, matrices + attention)

    def prefill(self, num_tokens: float, before: float = 0.0) -> Work:
        """``num_tokens`` of a prompt after ``before`` known ones, and one sampled token.

        But for reading the weights.
        """
        shape = self.shape
        matrices = 2.0 * (num_tokens * shape.layer_params + shape.head_params)
        attended = num_tokens * before + num_tokens * (num_tokens + 1) / 2
        read = before * shape.kv_elements * self.kv_bytes
        return Work(read, matrices + attended * shape.attention_flops)


def floors(scenario: Scenario, cost: Cost, machine: Machine) -> dict[str, float]:
    """Floors of the figures that a scenario is judged by.

    Those are times (``_ms``), and ``tok_s``, generated tokens a second, whose floor is a ceiling.
    """
    batch, out = min(scenario.concurrency, scenario.num_requests), scenario.max_tokens
    shared = scenario.prefix_words if scenario.shares_prefix else 0
    own = scenario.mean_prompt + scenario.prefix_words - shared
    step = cost.weights() + cost.decode(batch, own + out / 2, shared)
    first = cost.weights() + cost.prefill(shared + own)
    if scenario.kind == "interfere":
        long = cost.weights() + cost.prefill(scenario.long_words)
        return {
            "gap_max_ms": 1e3 * step.seconds(machine),
            "long_ttft_ms": 1e3 * long.seconds(machine),
        }
    if scenario.concurrency == 1:
        return {
            "tpot_p50_ms": 1e3 * step.seconds(machine),
            "ttft_p50_ms": 1e3 * first.seconds(machine),
        }
    num_waves = scenario.num_requests / batch
    work = cost.weights() * (math.ceil(num_waves) * out)
    work += cost.decode(batch, own + out / 2, shared) * (num_waves * (out - 1))
    work += cost.prefill(own, shared) * scenario.num_requests
    if shared:
        work += cost.prefill(shared)
    seconds = work.seconds(machine)
    if scenario.kind == "open":
        alone = cost.weights() + cost.decode(1, own + out / 2)
        came = (scenario.num_requests - 1) * scenario.interval
        last = came + first.seconds(machine) + (out - 1) * alone.seconds(machine)
        seconds = max(seconds, last)
    result = {"tok_s": scenario.num_requests * out / seconds}
    if shared:  # the first request has to compute the prefix
        result["ttft_p99_ms"] = 1e3 * first.seconds(machine)
    return result
