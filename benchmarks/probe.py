"""Read bandwidth and rates of products of this machine, measured in less than a second.

``probe.c`` and ``products.c`` are compiled for this machine. Without a C compiler torch measures a
sum and a large matrix product instead, which comes close. The memory bandwidth of a shared machine
changes within seconds, so call ``probe`` again before and after every measurement.
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.floors import Machine

SOURCE = "probe.c"

PRODUCTS = "products.c"

KINDS = ("float32", "bfloat16", "int8")
"""Types of numbers in the order in which ``products.c`` prints the rates of their products."""

MEGABYTES = 256
"""Far more than the last-level cache of a machine with a few cores."""

SECONDS = 0.2

TARGETS: tuple[list[str], ...] = (["-march=native"], ["-mcpu=native"], [])
"""Compiler flags for the CPU of this machine; x86 and ARM differ."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """``read_gbs`` in 10^9 bytes per second, the others in 10^9 operations per second.

    ``products``: of products in registers, by the type of their numbers.
    """

    threads: int
    read_gbs: float
    fma_gflops: float
    method: str
    products: dict[str, float] = field(default_factory=dict)


def probe(threads: int | None = None) -> Rates:
    """Measure with this number of threads, by default one per core."""
    threads = threads or num_cores()
    program = compiled(SOURCE)
    if program is None:
        return _torch_rates(threads)
    done = subprocess.run(
        [program, str(threads), str(MEGABYTES), str(SECONDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    read, fma = map(float, done.stdout.split())
    products = product_rates(threads)
    return Rates(
        threads=threads, read_gbs=read, fma_gflops=fma, method="compiled", products=products
    )


def product_rates(threads: int) -> dict[str, float]:
    """10^9 operations per second of products in registers; empty without a C compiler."""
    program = compiled(PRODUCTS)
    if program is None:
        return {}
    done = subprocess.run([program, str(threads)], capture_output=True, text=True, check=True)
    return dict(zip(KINDS, map(float, done.stdout.split()), strict=True))


def middle_of(found: Sequence[Rates]) -> Rates:
    """The medians of several probes."""
    return replace(
        found[0],
        read_gbs=statistics.median(rates.read_gbs for rates in found),
        fma_gflops=statistics.median(rates.fma_gflops for rates in found),
        products={
            kind: statistics.median(rates.products[kind] for rates in found)
            for kind in found[0].products
        },
    )


def machine_of(rates: Rates, gemm: dict[str, float], dtype: str) -> Machine:
    """The rates that floors for weights of this type are computed from.

    The operation rate is the highest of the products in registers and the matrix products ``gemm``
    (see ``benchmarks.matmul``), of this type and of bfloat16: a CPU with bfloat16 instructions
    exceeds its float32 rate. Quantized weights count as bytes: servers multiply them so.
    """
    kinds = ("bfloat16", dtype if dtype in KINDS else "int8")
    products = [found.get(kind, 0.0) for found in (rates.products, gemm) for kind in kinds]
    operations = max(rates.fma_gflops, *products)
    return Machine(read_rate=rates.read_gbs * 1e9, operation_rate=operations * 1e9)


def num_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fastest(call: Callable[[], object], limit: float = SECONDS) -> float:
    """Seconds of the fastest of several calls: at least three, and more while ``limit`` lasts."""
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


@functools.cache
def compiled(source: str = SOURCE) -> str | None:
    """Path of a compiled program of this folder, or None without a C compiler."""
    path = Path(__file__).with_name(source)
    program = str(Path(_folder().name) / path.stem)
    for compiler in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if shutil.which(compiler) is None:
            continue
        for target in TARGETS:
            command = [compiler, "-O3", *target, "-pthread", str(path), "-o", program]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return program
    return None


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The folder of the compiled program; it is deleted when this process exits."""
    return tempfile.TemporaryDirectory(prefix="roseinfer-probe-")


def _torch_rates(threads: int) -> Rates:
    import torch  # noqa: PLC0415 - slow to import, and not needed with a C compiler

    torch.set_num_threads(threads)
    with torch.inference_mode():
        buffer = torch.ones(MEGABYTES * 1_000_000 // 8, dtype=torch.int64)
        read = buffer.nbytes / fastest(buffer.sum) / 1e9
        square = torch.randn(1024, 1024)
        fma = 2 * 1024**3 / fastest(functools.partial(torch.mm, square, square)) / 1e9
    return Rates(threads=threads, read_gbs=read, fma_gflops=fma, method="torch")
