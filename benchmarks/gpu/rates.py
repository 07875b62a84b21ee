"""What the device can do at most: bytes copied and products multiplied in a second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from benchmarks.floors import Machine
from benchmarks.gpu.options import Options, free_memory

COPY_BYTES = 4 * 2**30
MATRIX_SIZE = 8192


def measure(options: Options) -> Machine:
    """Best of several: read rate (of a copy, both ways counted) and rate of a large product."""
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
    free_memory()  # whole: what comes next must not lie in pieces of it
    return Machine(read_rate=copied, operation_rate=2 * rows**3 / seconds)


def seconds_of(
    work: Callable[[], object], device: str, *, runs: int = 5, repeats: int = 5
) -> float:
    """Seconds of one call, the best of several runs."""

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
