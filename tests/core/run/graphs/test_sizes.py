"""The batch sizes that get a CUDA graph."""

from __future__ import annotations

import torch

from core.run.graphs.sizes import (
    LAUNCHES_BYTES,
    MOST_TOKENS,
    graph_batch_sizes,
    graphs_nbytes,
    piece_sizes,
)
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


@each("max_num_tokens", [1, 16, 17, 100, 512, 2048, 8192])
def test_sizes_of_pieces_need_little_padding(max_num_tokens):
    sizes = piece_sizes(max_num_tokens, 10**9)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == min(max_num_tokens, MOST_TOKENS)
    for num_tokens in range(1, sizes[-1] + 1):
        padding = min(size for size in sizes if size >= num_tokens) - num_tokens
        assert padding <= max(15, num_tokens // 4)
    assert len(sizes) <= 24


def test_larger_models_have_pieces_of_fewer_tokens():
    largest = [piece_sizes(8192, n * 10**9)[-1] for n in (1, 4, 8, 70)]
    assert largest == [2048, 1000, 500, 256]
