"""Time the CPU attention of one layer, alone: decode and prefill, short and long contexts.

    python -m benchmarks.cpu_attention [--rounds N]

The shortest of N rounds counts. ``GB/s`` are the bytes of keys and values that are read,
``GFLOP/s`` the products of queries, keys, weights and values. Compare two source trees by running
the script with PYTHONPATH set to each in turn.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
import torch

from core.attention.cpu_backend import PagedCPUBackend
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model_input import ModelInput

BLOCK_SIZE = 16
GPT2, QWEN3 = (12, 12, 64), (16, 8, 128)


class Case(NamedTuple):
    name: str
    heads: tuple[int, int, int]
    shapes: list[tuple[int, int]]
    """(tokens computed before, tokens now) of each sequence."""


CASES = (
    Case("gpt2, 43 streams of 70", GPT2, [(70, 1)] * 43),
    Case("gpt2, 1 stream of 500", GPT2, [(500, 1)]),
    Case("gpt2, prompt of 512", GPT2, [(0, 512)]),
    Case("qwen3-0.6b, 32 streams of 300", QWEN3, [(300, 1)] * 32),
    Case("qwen3-0.6b, 1 stream of 6000", QWEN3, [(6000, 1)]),
    Case("qwen3-0.6b, 256 tokens at 5744", QWEN3, [(5744, 256)]),
)


def batch_of(shapes: list[tuple[int, int]]) -> ModelInput:
    counts = np.array([now for _, now in shapes])
    lens = np.array([before + now for before, now in shapes])
    num_blocks = -(-lens // BLOCK_SIZE)
    tables = np.zeros((len(shapes), num_blocks.max()), dtype=np.int64)
    free = iter(np.random.default_rng(0).permutation(num_blocks.sum()))
    for i, count in enumerate(num_blocks):
        tables[i, :count] = [next(free) for _ in range(count)]
    positions = np.concatenate([np.arange(b, b + n) for b, n in shapes])
    rows = np.repeat(np.arange(len(shapes)), counts)
    slots = tables[rows, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    return ModelInput(
        token_ids=torch.zeros(len(positions), dtype=torch.int64),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        logits_indices=torch.zeros(0, dtype=torch.int64),
        query_starts=np.concatenate([[0], np.cumsum(counts)]),
        context_lens=lens,
        block_tables=tables,
    )


def run(case: Case, dtype: torch.dtype, rounds: int) -> None:
    heads, kv_heads, dim = case.heads
    layer = LayerSpec(heads, kv_heads, dim, dim, dim**-0.5, None)
    batch = batch_of(case.shapes)
    num_blocks = int(batch.block_tables.max()) + 1
    layers = [layer] * max(1, (256 << 20) // (num_blocks * BLOCK_SIZE * kv_heads * dim * 4))
    storage = KVStorage(
        layers,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    for tensor in (*storage.keys, *storage.values):
        tensor.fill_(0.5)
    backend = PagedCPUBackend(storage, layers)
    backend.plan(batch)
    states = [torch.randn(len(batch.slots), count, dim) for count in (heads, kv_heads, kv_heads)]
    times = []
    for i in range(rounds):
        start = time.perf_counter()
        backend.forward(
            *states, i % len(layers)
        )  # layers in turn: their caches are not in the CPU's
        times.append(time.perf_counter() - start)
    best = min(times)
    keys = sum(b + n for b, n in case.shapes)
    pairs = sum(n * b + n * (n + 1) // 2 for b, n in case.shapes)
    gbytes = keys * kv_heads * dim * 2 * dtype.itemsize / 1e9
    gflop = pairs * heads * dim * 4 / 1e9
    print(
        f"{case.name:32} {str(dtype)[6:]:9} {best * 1e3:8.3f} ms {np.median(times) * 1e3:8.3f} "
        f"{gbytes / best:7.1f} GB/s {gflop / best:7.0f} GFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    for case in CASES:
        for dtype in (torch.bfloat16, torch.float32):
            run(case, dtype, rounds)


if __name__ == "__main__":
    main()
