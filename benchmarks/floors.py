"""The least time a machine needs for a scenario: a lower bound for every server.

Every step reads all weights once, and the keys and values of each sequence's context once (those of
a shared prefix once for all sequences). Every token costs two operations per matrix element, and
four per element of a query head and token attended to. The output layer works only for sampled
tokens. So the lower bound of any piece of work is

    floor = max(bytes / read bandwidth, operations / operation rate)

with the bandwidth and the rate measured on the machine in the same run, on all threads. The bytes
of a scenario are those of the fewest steps it needs (the batch is as large as possible, prompts are
computed in steps that also decode). Its operations do not depend on the number of steps. An open
load ends no earlier than its last request, if that one is answered alone.

Not counted, so that every real server is slower: norms, activations, sampling, writes to the KV
cache, reads and writes of activations, tokenization, HTTP. A last-level cache that keeps a part of
the weights between steps can beat the floor by that part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scenarios import Scenario
from benchmarks.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``read_rate`` in bytes per second, ``operation_rate`` in operations per second."""

    read_rate: float
    operation_rate: float


@dataclass(frozen=True)
class Work:
    """Bytes to read and operations to compute."""

    num_bytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.num_bytes + other.num_bytes, self.operations + other.operations)

    def __mul__(self, times: float) -> Work:
        return Work(self.num_bytes * times, self.operations * times)

    def seconds(self, machine: Machine) -> float:
        """The lower bound of the time."""
        return max(self.num_bytes / machine.read_rate, self.operations / machine.operation_rate)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Computes a model's work. ``weight_bytes`` and ``kv_bytes`` are sizes of one element."""

    shape: Shape
    weight_bytes: float
    kv_bytes: float

    def weights(self) -> Work:
        """Read every matrix once."""
        return Work(self.weight_bytes * (self.shape.layer_params + self.shape.head_params))

    def decode(self, batch: int, context: float, shared: float = 0.0) -> Work:
        """One step of ``batch`` sequences, without reading the weights.

        Each sequence attends to ``context`` tokens of its own and to ``shared`` common tokens.
        """
        shape = self.shape
        matrices = 2.0 * batch * (shape.layer_params + shape.head_params)
        attention = batch * (context + shared) * shape.attention_flops
        read = (batch * context + shared) * shape.kv_elements * self.kv_bytes
        return Work(read, matrices + attention)

    def prefill(self, num_tokens: float, before: float = 0.0) -> Work:
        """``num_tokens`` of a prompt after ``before`` cached ones, and one sampled token.

        Does not count reading the weights.
        """
        shape = self.shape
        matrices = 2.0 * (num_tokens * shape.layer_params + shape.head_params)
        attended = num_tokens * before + num_tokens * (num_tokens + 1) / 2
        read = before * shape.kv_elements * self.kv_bytes
        return Work(read, matrices + attended * shape.attention_flops)


def floors(scenario: Scenario, cost: Cost, machine: Machine) -> dict[str, float]:
    """The bounds of a scenario's main figures, by their names in the results.

    Lower bounds for times (``_ms``), an upper bound for ``tok_s``, generated tokens per second.
    """
    batch, out = min(scenario.concurrency, scenario.num_requests), scenario.max_tokens
    shared = scenario.prefix_words if scenario.shares_prefix else 0
    own = scenario.mean_prompt + scenario.prefix_words - shared
    step = cost.weights() + cost.decode(batch, own + out / 2, shared)
    first = cost.weights() + cost.prefill(shared + own)
    if scenario.kind == "follow":
        return _after_first(scenario, cost, machine)
    if scenario.kind == "interfere":
        long = cost.weights() + cost.prefill(scenario.long_words)
        return {
            "gap_max_ms": 1e3 * step.seconds(machine),
            "long_ttft_ms": 1e3 * long.seconds(machine),
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
        arrival = (scenario.num_requests - 1) * scenario.interval
        last = arrival + first.seconds(machine) + (out - 1) * alone.seconds(machine)
        seconds = max(seconds, last)
    result = {"tok_s": scenario.num_requests * out / seconds}
    if scenario.concurrency == 1:
        result["tpot_p50_ms"] = 1e3 * step.seconds(machine)
        result["ttft_p50_ms"] = 1e3 * first.seconds(machine)
    if shared:  # the first request computes the prefix
        result["ttft_p99_ms"] = 1e3 * first.seconds(machine)
    return result


def _after_first(scenario: Scenario, cost: Cost, machine: Machine) -> dict[str, float]:
    """Those of one request alone, and of the streams that share its prefix."""
    streams, out = scenario.num_streams, scenario.max_tokens
    shared, own = scenario.prefix_words, scenario.mean_prompt
    first = cost.weights() + cost.prefill(shared + own)
    alone = cost.weights() + cost.decode(1, shared + own + out / 2)
    step = cost.weights() + cost.decode(streams, own + out / 2, shared)
    # the prompts' own tokens are computed in one step, which reads the prefix once
    one = cost.prefill(own, shared)
    work = cost.weights() + Work(one.num_bytes, streams * one.operations) + step * (out - 1)
    return {
        "first_ttft_ms": 1e3 * first.seconds(machine),
        "first_tpot_ms": 1e3 * alone.seconds(machine),
        "tpot_p50_ms": 1e3 * step.seconds(machine),
        "tok_s": streams * out / work.seconds(machine),
    }
