"""The limits of this machine: how fast it reads memory and multiplies, and what follows from that.

    python -m benchmarks.limits                      # rates, and those of F.linear
    python -m benchmarks.limits --model DIR          # ... for a model's matrices, and its floors
    python -m benchmarks.limits --probe 10           # read bandwidth and multiply-adds, ten times

Read bandwidth and the rate of multiply-adds in registers come from ``limits.c``, compiled for this
machine; without a C compiler, from torch (a sum, a large matrix product), which comes close. What
F.linear reaches is measured on weights that are rotated through copies of 256 MB, so that
they come from memory as in a decode step. The operation rate of a floor (``benchmarks/floors.py``)
is the higher one of the multiply-adds in registers and of what a matrix product reached: where a
processor has instructions for a shorter type, float32 is not its limit.

Memory bandwidth of a shared machine changes within seconds: ``probe`` takes less than one, and is
meant to be called again and again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.floors import Cost, Machine, floors
from benchmarks.scenarios import scenarios
from benchmarks.shapes import shape_of

SOURCE = Path(__file__).with_name("limits.c")

PROBE_MEGABYTES = 256
"""Well above any last-level cache of a machine of a few cores; takes 0.1 s to fill."""

PROBE_SECONDS = 0.2

ROTATED_BYTES = 256e6
"""Weights that F.linear is timed over, for the same reason."""

ROWS = (1, 8, 32, 64, 256)

GEMM = (256, 4096, 1024)
"""Tokens, outputs and inputs of the one product that tells the operation rate."""

TARGETS: tuple[list[str], ...] = (["-march=native"], ["-mcpu=native"], [])
"""What compilers on different machines call the machine they run on."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """``read_gbs`` in 10^9 bytes a second, ``fma_gflops`` in 10^9 operations a second."""

    threads: int
    read_gbs: float
    fma_gflops: float
    method: str


def probe(threads: int | None = None) -> Rates:
    """The machine as it is now, with all its cores or so many threads. Less than a second."""
    threads = threads or num_cores()
    program = _compiled()
    if program is None:
        return _torch_rates(threads)
    done = subprocess.run(
        [program, str(threads), str(PROBE_MEGABYTES), str(PROBE_SECONDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    read, fma = map(float, done.stdout.split())
    return Rates(threads=threads, read_gbs=read, fma_gflops=fma, method="compiled")


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gemm_gflops() -> dict[str, float]:
    """The best rate of a matrix product of 256 rows, by type of its inputs; all cores."""
    import torch  # noqa: PLC0415 - a probe does without it
    from torch.nn.functional import linear  # noqa: PLC0415

    torch.set_num_threads(num_cores())
    rows, outputs, inputs = GEMM
    operations = 2 * rows * outputs * inputs
    found = {}
    with torch.inference_mode():
        for dtype in (torch.bfloat16, torch.float32):
            x, w = torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
            seconds = _best(functools.partial(linear, x, w))
            found[str(dtype).removeprefix("torch.")] = operations / seconds / 1e9
        a = torch.randint(-9, 9, (rows, inputs), dtype=torch.int8)
        b = torch.randint(-9, 9, (inputs, outputs), dtype=torch.int8)
        seconds = _best(functools.partial(torch._int_mm, a, b))  # noqa: SLF001 - it has no other name
        found["int8"] = operations / seconds / 1e9
    return found


def machine_of(rates: Rates, gemm: dict[str, float], dtype: str) -> Machine:
    """What floors for weights of this type are computed from."""
    operations = max(rates.fma_gflops, gemm.get(dtype, 0.0), gemm.get("bfloat16", 0.0))
    return Machine(read_rate=rates.read_gbs * 1e9, operation_rate=operations * 1e9)


def linear_table(matrices: dict[str, tuple[int, int]], dtype: str) -> list[dict[str, Any]]:
    """What F.linear reaches: a row for each matrix and number of rows multiplied at once."""
    import torch  # noqa: PLC0415
    from torch.nn.functional import linear  # noqa: PLC0415

    torch.set_num_threads(num_cores())
    kind = getattr(torch, dtype)
    table = []
    with torch.inference_mode():
        for name, (outputs, inputs) in matrices.items():
            num_bytes = outputs * inputs * kind.itemsize
            num_copies = max(1, int(ROTATED_BYTES / num_bytes))
            weights = [torch.randn(outputs, inputs).to(kind) for _ in range(num_copies)]
            for rows in ROWS:
                x = torch.randn(rows, inputs).to(kind)

                def multiply(x: torch.Tensor = x, weights: list[torch.Tensor] = weights) -> None:
                    for w in weights:
                        linear(x, w)

                seconds = _best(multiply, limit=0.3) / num_copies
                table.append(
                    {
                        "matrix": name,
                        "outputs": outputs,
                        "inputs": inputs,
                        "dtype": dtype,
                        "rows": rows,
                        "us": seconds * 1e6,
                        "gflops": 2 * rows * outputs * inputs / seconds / 1e9,
                        "weight_gbs": num_bytes / seconds / 1e9,
                    }
                )
    return table


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where the program lies while this process lives."""
    return tempfile.TemporaryDirectory(prefix="roseinfer-limits-")


@functools.cache
def _compiled() -> str | None:
    """The path of the compiled program, or None where nothing compiles it."""
    program = str(Path(_folder().name) / "limits")
    for compiler in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if shutil.which(compiler) is None:
            continue
        for target in TARGETS:
            command = [compiler, "-O3", *target, "-pthread", str(SOURCE), "-o", program]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return program
    return None


def _torch_rates(threads: int) -> Rates:
    import torch  # noqa: PLC0415

    torch.set_num_threads(threads)
    with torch.inference_mode():
        buffer = torch.ones(PROBE_MEGABYTES * 1_000_000 // 8, dtype=torch.int64)
        read = buffer.nbytes / _best(buffer.sum) / 1e9
        square = torch.randn(1024, 1024)
        fma = 2 * 1024**3 / _best(functools.partial(torch.mm, square, square)) / 1e9
    return Rates(threads=threads, read_gbs=read, fma_gflops=fma, method="torch")


def _best(call: Callable[[], object], limit: float = PROBE_SECONDS) -> float:
    """Seconds of the fastest call, of at least three and of as many as fit into ``limit``."""
    call()
    times: list[float] = []
    end = time.perf_counter() + limit
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        if times[-1] > 10 * limit:
            break
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probe", type=int, metavar="TIMES")
    parser.add_argument("--model", type=Path, help="a model directory")
    parser.add_argument("--dtype", default="bfloat16,float32", help="of F.linear, with commas")
    parser.add_argument("--gemm", action="store_true", help="one JSON line of product rates")
    parser.add_argument("--json", type=Path, help="write everything here too")
    options = parser.parse_args()
    if options.gemm:
        print(json.dumps(gemm_gflops()))
    elif options.probe:
        _print_probes([probe() for _ in range(options.probe)])
    else:
        found = _measure(options.model, options.dtype.split(","))
        if options.json:
            options.json.write_text(json.dumps(found, indent=1), "utf-8")


def _print_probes(found: list[Rates]) -> None:
    for rates in found:
        print(f"read {rates.read_gbs:6.1f} GB/s   multiply-adds {rates.fma_gflops:7.1f} GFLOP/s")
    read = statistics.median(rates.read_gbs for rates in found)
    fma = statistics.median(rates.fma_gflops for rates in found)
    print(f"median {read:.1f} GB/s, {fma:.1f} GFLOP/s, {found[0].threads} threads")


def _measure(model: Path | None, dtypes: list[str]) -> dict[str, Any]:
    """Measure and print everything."""
    found: dict[str, Any] = {"rates": []}
    for threads in sorted({1, num_cores()}):
        rates = probe(threads)
        found["rates"].append(asdict(rates))
        print(
            f"{threads} threads ({rates.method}): read {rates.read_gbs:.1f} GB/s, "
            f"multiply-adds {rates.fma_gflops:.1f} GFLOP/s"
        )
    gemm = found["gemm"] = gemm_gflops()
    print("matrix product, GFLOP/s:", ", ".join(f"{k} {v:.0f}" for k, v in gemm.items()))
    if model is None:
        return found
    shape = shape_of(model)
    found["floors"] = {}
    for dtype, weight_bytes in (("bfloat16", 2), ("int8", 1)):
        cost = Cost(shape=shape, weight_bytes=weight_bytes, kv_bytes=2)
        machine = machine_of(rates, gemm, dtype)
        for scenario in scenarios(shape.max_model_len).values():
            floor = found["floors"][f"{dtype} {scenario.name}"] = floors(scenario, cost, machine)
            shown = ", ".join(f"{figure} {value:.1f}" for figure, value in floor.items())
            print(f"floor, {dtype} {scenario.name}: {shown}")
    found["linear"] = []
    for dtype in dtypes:
        for row in linear_table(shape.matrices, dtype):
            found["linear"].append(row)
            print(
                f"F.linear {dtype} {row['matrix']} {row['outputs']} x {row['inputs']}, "
                f"{row['rows']} rows: {row['us']:.0f} us, {row['gflops']:.0f} GFLOP/s, "
                f"weights at {row['weight_gbs']:.1f} GB/s",
                flush=True,
            )
    return found


if __name__ == "__main__":
    main()
