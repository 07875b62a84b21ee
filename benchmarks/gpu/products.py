"""Checks and times matrix products with 8-bit weights at the sizes of Qwen3-8B."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from benchmarks.gpu.options import Options, free_memory
from core.fusion.quantised import FORMATS, QuantisedWeight, quantise

Product: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

MATRICES = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (24576, 4096), "down": (4096, 12288)}
NUM_ROWS = (1, 8, 32, 64, 128, 256, 512)

TINY_MATRICES = {"tiny": (96, 160)}
TINY_NUM_ROWS = (1, 40)

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest error relative to the largest output."""

_BYTES = 2**28
"""Bytes of matrices that a timing cycles through; more than the caches hold."""

_REPLAYS = 5


def products(options: Options) -> Iterator[dict[str, Any]]:
    """One row per matrix and format: the error, and microseconds by number of rows."""
    if not _can_run(options.device):
        yield {"name": "products", "skipped": "needs Triton, and a GPU or its interpreter"}
        return
    dtype = getattr(torch, options.dtype())
    for name, shape in (TINY_MATRICES if options.tiny else MATRICES).items():
        dense = torch.randn(shape, device=options.device).to(dtype)
        if options.device == "cuda":
            copies = _num_copies(dense.nbytes)
            matrices = [dense.clone() for _ in range(copies)]
            times = _times([partial(functional.linear, weight=m) for m in matrices], dense)
            yield {"name": f"{name} {options.dtype()}", **times}
            del matrices
        for fmt, stored_in in FORMATS.items():
            error = _error(dense, stored_in, TINY_NUM_ROWS if options.tiny else NUM_ROWS)
            row: dict[str, Any] = {"name": f"{name} {fmt}", "ok": error <= TOLERANCES[dtype]}
            row["max_error"] = error
            if options.device == "cuda":
                copies = _num_copies(dense.numel())
                weights = [QuantisedWeight([(dense, None)], stored_in) for _ in range(copies)]
                row |= _times([weight.multiply for weight in weights], dense)
                del weights
            yield row
        del dense
        free_memory()


def _can_run(device: str) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    from core.kernels.triton.types import IS_INTERPRETED  # noqa: PLC0415 - needs Triton

    return device == "cuda" or IS_INTERPRETED


def _error(dense: torch.Tensor, stored_in: torch.dtype, rows: tuple[int, ...]) -> float:
    """The error against a float32 product of the dequantised matrix."""
    codes, scale = quantise(dense, stored_in)
    exact = codes.float() * scale[:, None]
    weight = QuantisedWeight([(dense, None)], stored_in)
    worst = 0.0
    for num_rows in rows:
        x = torch.randn(num_rows, dense.shape[1], device=dense.device).to(dense.dtype)
        expected = x.float() @ exact.T
        error = (weight.multiply(x).float() - expected).abs().max() / expected.abs().max()
        worst = max(worst, float(error))
    return worst


def _num_copies(nbytes: int) -> int:
    return max(1, _BYTES // nbytes)


def _times(each: list[Product], dense: torch.Tensor) -> dict[str, float]:
    """Microseconds of one product by number of rows: all in one CUDA graph, the fastest replay."""
    found = {}
    for num_rows in NUM_ROWS:
        x = torch.randn(num_rows, dense.shape[1], device=dense.device).to(dense.dtype)
        each[0](x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for product in each:
                product(x)
        seconds = []
        for _ in range(_REPLAYS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        found[f"us_{num_rows}"] = 1e6 * min(seconds) / len(each)
    return found
