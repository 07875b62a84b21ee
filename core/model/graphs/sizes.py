"""The batch sizes that get a CUDA graph, and the memory of the graphs."""

from __future__ import annotations

import torch

LAUNCHES_BYTES = 16 * 2**20
"""Upper estimate of the driver's memory for a graph of a thousand launches."""


def graph_batch_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes with a graph, ascending.

    A batch needs at most 7 rows of padding, or an eighth of its size above 128 sequences.
    """
    sizes, size = [], 1
    while size < max_num_seqs:
        sizes.append(size)
        size += max(min(8, size), (1 << size.bit_length()) // 16)
    return [*sizes, max_num_seqs]


def graphs_nbytes(*, max_num_seqs: int, vocab_size: int, dtype: torch.dtype) -> int:
    """Estimate the bytes that all graphs keep: their logits, and the driver's launches."""
    sizes = graph_batch_sizes(max_num_seqs)
    return sum(sizes) * vocab_size * dtype.itemsize + len(sizes) * LAUNCHES_BYTES
