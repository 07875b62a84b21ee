"""The batch sizes that get a CUDA graph."""

from __future__ import annotations

import torch

from core.model.graphs.sizes import LAUNCHES_BYTES, graph_batch_sizes, graphs_nbytes
from tests.support.each import each


@each("max_num_seqs", [1, 2, 3, 7, 8, 9, 64, 100, 128, 250, 512])
def test_sizes_are_few_and_need_little_padding(max_num_seqs):
    sizes = graph_batch_sizes(max_num_seqs)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, max_num_seqs)
    for num_seqs in range(1, max_num_seqs + 1):
        padding = min(size for size in sizes if size >= num_seqs) - num_seqs
        assert padding <= 7 or (num_seqs > 128 and padding <= num_seqs / 8)
    assert len(sizes) <= 4 + max_num_seqs // 8


def test_graphs_keep_their_logits_and_launches():
    one = graphs_nbytes(max_num_seqs=1, vocab_size=1000, dtype=torch.bfloat16)
    assert one == 2000 + LAUNCHES_BYTES
    sizes = graph_batch_sizes(64)
    many = graphs_nbytes(max_num_seqs=64, vocab_size=1000, dtype=torch.bfloat16)
    assert many == 2000 * sum(sizes) + LAUNCHES_BYTES * len(sizes)
