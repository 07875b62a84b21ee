"""Time the CPU attention of one layer, alone: decode and prefill, short and long contexts.

    python -m benchmarks.cpu_attention [--rounds N]

Prints the shortest and the median of N rounds. ``GB/s`` are the bytes of keys and values that are
read, ``GFLOP/s`` the operations of both matrix products, by the shortest round. Compare two source
trees by running the script with PYTHONPATH set to each in turn.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.attention_batch import Shapes, shuffled_batch
from core.attention.cpu_backend import PagedCPUBackend
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

BLOCK_SIZE = 16
GPT2, QWEN3 = (12, 12, 64), (16, 8, 128)


class Case(NamedTuple):
    name: str
    heads: tuple[int, int, int]
    """Heads of queries, heads of keys and values, and their dimension."""

    shapes: Shapes
    num_shared: int = 0
    """Leading tokens that all sequences have in common."""


CASES = (
    Case("gpt2, 43 streams of 70", GPT2, [(70, 1)] * 43),
    Case("gpt2, 1 stream of 500", GPT2, [(500, 1)]),
    Case("gpt2, prompt of 512", GPT2, [(0, 512)]),
    Case("qwen3-0.6b, 32 streams of 300", QWEN3, [(300, 1)] * 32),
    *(
        Case(f"qwen3-0.6b, {count} x {length:,}", QWEN3, [(length, 1)] * count)
        for count, length in ((1, 1000), (8, 1000), (1, 6000), (1, 8000), (8, 8000), (1, 32_000))
    ),
    Case("qwen3-0.6b, 8 x 32,000 with 31,968 shared", QWEN3, [(32_000, 1)] * 8, 31_968),
    Case("qwen3-0.6b, 20 x 2,100 with 2,048 shared", QWEN3, [(2100, 1)] * 20, 2048),
    Case("qwen3-0.6b, 16 x 300, 128 at 4,000", QWEN3, [(300, 1)] * 16 + [(4000, 128)]),
    Case("qwen3-0.6b, 256 tokens at 5744", QWEN3, [(5744, 256)]),
    Case("qwen3-0.6b, 256 tokens at 31,744", QWEN3, [(31_744, 256)]),
)


def run(case: Case, dtype: torch.dtype, rounds: int) -> None:
    heads, kv_heads, dim = case.heads
    layer = LayerSpec(heads, kv_heads, dim, dim, dim**-0.5, None)
    num_shared = case.num_shared // BLOCK_SIZE
    num_own = sum(-(-sum(shape) // BLOCK_SIZE) - num_shared for shape in case.shapes)
    num_blocks = num_shared + num_own
    batch = shuffled_batch(case.shapes, BLOCK_SIZE, num_blocks, random.Random(0), num_shared)
    layers = [layer] * max(1, (256 << 20) // (num_blocks * BLOCK_SIZE * kv_heads * dim * 4))
    storage = KVStorage(
        layers,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    for tensor in storage.tensors:
        tensor.fill_(0.5 if dtype.is_floating_point else 1)
    backend = PagedCPUBackend(storage, layers)
    backend.plan(batch)
    q, k, v = (torch.randn(len(batch.slots), count, dim) for count in (heads, kv_heads, kv_heads))
    times = []
    for i in range(rounds):
        start = time.perf_counter()
        # In turn: the KV cache of the next layer is not in the CPU's caches.
        backend.forward(q, k, v, i % len(layers))
        times.append(time.perf_counter() - start)
    best = min(times)
    keys = sum(b + n for b, n in case.shapes) - (len(case.shapes) - 1) * case.num_shared
    pairs = sum(n * b + n * (n + 1) // 2 for b, n in case.shapes)
    gbytes = keys * kv_heads * dim * 2 * dtype.itemsize / 1e9
    gflop = pairs * heads * dim * 4 / 1e9
    print(
        f"{case.name:41} {str(dtype)[6:]:9} {best * 1e3:8.3f} ms {np.median(times) * 1e3:8.3f} ms "
        f"{gbytes / best:7.1f} GB/s {gflop / best:7.0f} GFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    for case in CASES:
        for dtype in (torch.int8, torch.bfloat16, torch.float32):
            run(case, dtype, rounds)


if __name__ == "__main__":
    main()
