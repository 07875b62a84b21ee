"""Machine: a replica's limits and step times, read from a file of measured steps.

The file is JSON; ``benchmarks/fleet/machines`` has examples and ``benchmarks.fleet.measure`` makes
one. ``steps`` are measured durations. A least-squares fit of relative errors with non-negative
coefficients makes StepTimes of them: two piecewise linear functions, with ``stream_knots`` and
``prompt_knots`` (counts of tokens), and two rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.fleet.step_times import PiecewiseLinear, StepTimes, pairs_of

Floats = npt.NDArray[np.float64]


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured step, or the mean of several.

    ``streams`` that attend to ``context`` tokens each sample a token, and ``prompt`` tokens of one
    prompt are computed, after ``start`` tokens of it that were computed before. ``note`` says where
    ``ms`` comes from.
    """

    ms: float
    streams: int = 0
    context: float = 0.0
    prompt: int = 0
    start: int = 0
    note: str = ""

    @property
    def num_tokens(self) -> int:
        return self.streams + self.prompt

    @property
    def pairs(self) -> int:
        return pairs_of(self.start, self.start + self.prompt)


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica.

    ``kv_tokens`` is the room of the KV cache. ``max_step_ms`` is what the server had whose figures
    these are: its default has changed. ``keys_per_row`` is what ``core.run.keys_per_row`` says of
    its model; None: attention counts nothing. ``request_ms`` is what a request costs before the
    scheduler has it and after its first token was sampled: parsing, tokenizing, HTTP. With
    ``reads_shared_once`` streams that begin alike attend to their common beginning at the cost of
    one: processor caches keep it from one to the next.
    """

    name: str
    source: str
    steps: tuple[Step, ...]
    stream_knots: tuple[int, ...]
    prompt_knots: tuple[int, ...]
    kv_tokens: int
    max_model_len: int
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_step_ms: float | None
    keys_per_row: float | None
    prefill_chunk_size: int | None = None
    block_size: int = 16
    request_ms: float = 0.0
    reads_shared_once: bool = False

    @property
    def num_blocks(self) -> int:
        return self.kv_tokens // self.block_size

    def step_times(self) -> StepTimes:
        return fit(self.steps, self.stream_knots, self.prompt_knots)


def read_machine(path: Path) -> Machine:
    """Read a machine's file. Raises OSError or msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Machine)


def fit(
    steps: Sequence[Step], stream_knots: Sequence[int], prompt_knots: Sequence[int]
) -> StepTimes:
    """Fit step times to measured steps, by the least squares of relative errors. Knots rise."""
    tokens = np.array([step.num_tokens for step in steps], dtype=float)
    has_prompt = np.array([float(step.prompt > 0) for step in steps])
    columns = [part * (1 - has_prompt) for part in _columns(tokens, stream_knots)]
    columns += [part * has_prompt for part in _columns(tokens, prompt_knots)]
    columns.append(np.array([step.streams * step.context for step in steps], dtype=float))
    columns.append(np.array([step.pairs for step in steps], dtype=float))
    ms = np.array([step.ms for step in steps])
    *rises, per_context, per_pair = (_solve(np.stack(columns, 1) / ms[:, None]) / 1e3).tolist()
    number = len(stream_knots)
    return StepTimes(
        PiecewiseLinear(tuple(stream_knots), tuple(accumulate(rises[:number]))),
        PiecewiseLinear(tuple(prompt_knots), tuple(accumulate(rises[number:]))),
        per_context,
        per_pair,
    )


def errors(machine: Machine) -> list[tuple[Step, float]]:
    """The steps, each with the relative error of its fitted time."""
    times = machine.step_times()
    return [(step, 1e3 * _of_step(times, step) / step.ms - 1) for step in machine.steps]


def _of_step(times: StepTimes, step: Step) -> float:
    context = round(step.streams * step.context)
    return times.of_step(step.streams, step.prompt, context, step.pairs)


def _columns(tokens: Floats, knots: Sequence[int]) -> list[Floats]:
    """Columns of the matrix of a piecewise linear fit: one for each knot, a row for each step.

    The unknowns are the time at the first knot and the rise from each knot to the next. A step
    has 1 of the first, and of each rise the part that its tokens reach: 0 to 1, and more than 1 of
    the last rise beyond the last knot.
    """
    found = [np.ones(len(tokens))]
    for i, (low, high) in enumerate(pairwise(knots)):
        part = (tokens - low) / (high - low)
        found.append(np.clip(part, 0, None if i == len(knots) - 2 else 1))
    return found


def _solve(matrix: Floats) -> Floats:
    """Least squares for a right side of ones, without negative coefficients.

    While any is negative, the most negative one becomes 0 and stays so. That need not be the
    optimum, as of the Lawson-Hanson algorithm, but takes a few lines and no SciPy.
    """
    active = list(range(matrix.shape[1]))
    ones = np.ones(matrix.shape[0])
    while True:
        scale = np.abs(matrix[:, active]).max(0)
        scale[scale == 0] = 1.0
        found: Any = np.linalg.lstsq(matrix[:, active] / scale, ones, rcond=None)[0] / scale
        if found.min() >= 0:
            solution = np.zeros(matrix.shape[1])
            solution[active] = found
            return solution
        del active[int(np.argmin(found * scale))]
