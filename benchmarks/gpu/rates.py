"""The device's limits: bytes copied and operations of a matrix product per second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

import torch

from benchmarks.floors import Machine
from benchmarks.gpu.options import Options, free_memory
from benchmarks.gpu.rows import Row

COPY_BYTES = 4 * 2**30
MATRIX_SIZE = 8192


def machine(options: Options) -> Iterator[Row]:
    """The device and its limits; floors follow from them."""
    found = measure(options)
    row: Row = {"name": "limits", "torch": torch.__version__}
    if options.device == "cuda":
        row |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    yield row | {"copy_gbs": found.read_rate / 1e9, "tflops": found.operation_rate / 1e12}


def measure(options: Options) -> Machine:
    """The best of several copies (reads and writes count) and of several large products."""
    scale = 64 if options.tiny else 1
    size = COPY_BYTES // scale
    source = torch.empty(size, dtype=torch.uint8, device=options.device)
    target = torch.empty_like(source)
    copied = 2 * size / seconds_of(functools.partial(target.copy_, source), options.device)
    del source, target
    rows = MATRIX_SIZE // scale
    dtype = getattr(torch, options.dtype())
    a = torch.randn(rows, rows, device=options.device).to(dtype)
    b = torch.randn(rows, rows, device=options.device).to(dtype)
    seconds = seconds_of(functools.partial(torch.matmul, a, b), options.device)
    del a, b
    free_memory()  # torch would otherwise place later tensors inside these large allocations
    return Machine(read_rate=copied, operation_rate=2 * rows**3 / seconds)


def seconds_of(
    work: Callable[[], object], device: str, *, runs: int = 5, repeats: int = 5
) -> float:
    """Seconds of one call: the fastest run, divided by its number of calls."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    found = []
    for _ in range(runs):
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        wait()
        found.append((time.perf_counter() - start) / repeats)
    return min(found)
