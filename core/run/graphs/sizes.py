"""The sizes of steps that get CUDA graphs, and the memory of the graphs."""

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


MOST_TOKENS = 2048
"""Tokens of the largest step with prompts that is captured."""

_WORK_OF_LAUNCHES = 4 * 10**12
"""Parameters times tokens of a step that computes as long as the host takes to launch it eagerly:
about 20 ms, 400 teraFLOP/s, 2 operations a parameter and token. Larger steps gain nothing."""


def piece_sizes(max_num_tokens: int, num_parameters: int) -> list[int]:
    """Numbers of tokens of steps with prompts that are captured, ascending.

    A step needs at most 15 tokens of padding, or a quarter of its size above 64 tokens.
    """
    useful = max(_WORK_OF_LAUNCHES // max(num_parameters, 1), 256)
    largest = min(max_num_tokens, MOST_TOKENS, useful)
    sizes, size = [], 16
    while size < largest:
        sizes.append(size)
        size += max(16, (1 << size.bit_length()) // 8)
    return [*sizes, largest]


def graphs_nbytes(*, max_num_seqs: int, vocab_size: int, dtype: torch.dtype) -> int:
    """Estimate the bytes that all graphs keep: their logits, and the driver's launches."""
    sizes = graph_batch_sizes(max_num_seqs)
    return sum(sizes) * vocab_size * dtype.itemsize + len(sizes) * LAUNCHES_BYTES
