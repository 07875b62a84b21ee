"""Time the CPU's matrix products alone, and say what share of the machine's limit they reach.

    python -m benchmarks.cpu_linear [--models gpt2] [--formats bfloat16,int8] [--rows 1,64]

The limit of a product is the longer of two times: its weights' bytes at the rate at which this
machine reads memory, and its operations at the rate of products in registers. Both rates are
measured in the same run, the first one before each matrix, because shared memory changes within
seconds. The time is the shortest of many rounds over copies of the matrix that no cache holds. The
last lines add up what a step of the model multiplies.

Compare two source trees by running the script with PYTHONPATH set to each in turn. On a busy
machine use OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import torch

from benchmarks.cpu_products import multiply
from benchmarks.probe import num_cores, probe, product_rates
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format, PackedWeight, pack

ROTATED_BYTES = 256 << 20
"""Bytes of weights that a round cycles through."""

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 512)

WEIGHT_BYTES = {Format.FLOAT32: 4, Format.BFLOAT16: 2, Format.INT8: 1}
"""Bytes of a weight in each format."""


class Model(NamedTuple):
    """Matrices by name, (outputs, inputs); the head occurs once, the others in each layer."""

    num_layers: int
    matrices: dict[str, tuple[int, int]]


MODELS = {
    "gpt2": Model(
        12,
        {
            "qkv": (2304, 768),
            "out": (768, 768),
            "up": (3072, 768),
            "down": (768, 3072),
            "head": (50257, 768),
        },
    ),
    "qwen3-0.6b": Model(
        28,
        {
            "qkv": (4096, 1024),
            "out": (1024, 2048),
            "gate and up": (6144, 1024),
            "down": (1024, 3072),
            "head": (151936, 1024),
        },
    ),
}


def copies_of(weight: PackedWeight) -> list[PackedWeight]:
    """The matrix several times, so that a round over all comes from memory."""
    count = max(1, ROTATED_BYTES // weight.nbytes)
    copies = [weight]
    for _ in range(count - 1):
        data = torch.empty(weight.nbytes + 64, dtype=torch.uint8)
        data = data[-data.data_ptr() % 64 :][: weight.nbytes]
        copies.append(replace(weight, data=data.copy_(weight.data)))
    return copies


def seconds_of(weights: list[PackedWeight], rows: int, limit: float) -> float:
    """The shortest time of a product with ``rows`` rows, while ``limit`` lasts."""
    x = torch.randn(rows, weights[0].num_columns)
    out = torch.empty(rows, weights[0].num_rows)
    best, end = float("inf"), time.perf_counter() + limit
    for weight in itertools.cycle(weights):
        start = time.perf_counter()
        multiply(weight, x, out=out)
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
    raise AssertionError("there are no weights")


class Case(NamedTuple):
    """A matrix in one format."""

    model: str
    name: str
    format: Format


def measure(
    library: Kernels, case: Case, rows: tuple[int, ...], rate: float, options: argparse.Namespace
) -> dict[int, tuple[float, float]]:
    """Print a line for each number of rows. Returns the seconds and their limit by rows."""
    outputs, inputs = MODELS[case.model].matrices[case.name]
    weights = copies_of(pack(library, [torch.randn(outputs, inputs)], [None], case.format))
    read = max(probe(options.threads).read_gbs for _ in range(2)) * 1e9
    found = {}
    for count in rows:
        seconds = seconds_of(weights, count, options.seconds)
        num_bytes = outputs * inputs * WEIGHT_BYTES[case.format]
        operations = 2 * count * outputs * inputs
        limit = max(num_bytes / read, operations / rate)
        found[count] = seconds, limit
        print(
            f"{case.model:10} {case.name:11} {outputs:6} x {inputs:4} {case.format.name.lower():8} "
            f"{count:4} rows {seconds * 1e6:9.1f} us {num_bytes / seconds / 1e9:6.1f} of "
            f"{read / 1e9:5.1f} GB/s {operations / seconds / 1e9:7.0f} of {rate / 1e9:5.0f} GFLOPS "
            f"{limit / seconds:5.0%} of the limit",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--formats", default=",".join(f.name.lower() for f in WEIGHT_BYTES))
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    options = parser.parse_args()
    library = kernels()
    assert library is not None, "this needs the compiled kernels"
    options.threads = int(os.environ.get("OMP_NUM_THREADS", num_cores()))
    torch.set_num_threads(options.threads)
    rows = tuple(map(int, options.rows.split(",")))
    rates = product_rates(options.threads)
    assert rates, "this needs a C compiler"
    print("in registers:", ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    for model in options.models.split(","):
        steps: dict[tuple[Format, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for fmt in (Format[name.upper()] for name in options.formats.split(",")):
            for name in MODELS[model].matrices:
                times = 1 if name == "head" else MODELS[model].num_layers
                case = Case(model, name, fmt)
                rate = rates[fmt.name.lower()] * 1e9
                for count, pair in measure(library, case, rows, rate, options).items():
                    for i, seconds in enumerate(pair):
                        steps[fmt, count][i] += times * seconds
        for (fmt, count), (seconds, limit) in steps.items():
            print(
                f"{model:10} all of a step, {fmt.name.lower():8} {count:4} rows "
                f"{seconds * 1e3:8.2f} ms {limit / seconds:5.0%} of the limit"
            )


if __name__ == "__main__":
    main()
