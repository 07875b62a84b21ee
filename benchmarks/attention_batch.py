"""Batches for attention alone: sequences of given shapes over given KV cache blocks, on the CPU."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch

from core.batch.model_input import ModelInput

Shapes = Sequence[tuple[int, int]]
"""(tokens computed before, tokens now) of each sequence."""


def batch_of(tables: Sequence[Sequence[int]], shapes: Shapes, block_size: int) -> ModelInput:
    """Sequence ``i`` has the blocks ``tables[i]``. All token ids are 0; there are no logits."""
    counts = np.array([now for _, now in shapes])
    width = max(map(len, tables))
    padded = np.array([[*table, *[0] * (width - len(table))] for table in tables])
    positions = np.concatenate([np.arange(before, before + now) for before, now in shapes])
    rows = np.repeat(np.arange(len(shapes)), counts)
    slots = padded[rows, positions // block_size] * block_size + positions % block_size
    return ModelInput(
        token_ids=torch.zeros(len(positions), dtype=torch.int64),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        logits_indices=torch.zeros(0, dtype=torch.int64),
        query_starts=np.concatenate([[0], np.cumsum(counts)]),
        context_lens=np.array([sum(shape) for shape in shapes]),
        block_tables=padded,
    )


def shuffled_batch(
    shapes: Shapes, block_size: int, num_blocks: int, rng: random.Random, num_shared: int = 0
) -> ModelInput:
    """The batch whose sequences have blocks in random order, and ``num_shared`` in common."""
    free = rng.sample(range(num_blocks), num_blocks)
    shared = [free.pop() for _ in range(num_shared)]
    tables = [
        [*shared, *(free.pop() for _ in range(-(-sum(shape) // block_size) - num_shared))]
        for shape in shapes
    ]
    return batch_of(tables, shapes, block_size)
