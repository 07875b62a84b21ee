"""Paged attention in torch operations, for any device and without a compiler.

Sequences of similar shape form a group, padded to one rectangle of queries and blocks. Keys and
values are gathered as ``[group, kv_heads, length, dim]``. The query heads of a kv head are rows of
one matrix, so keys and values are not repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from core.attention.cache_write import write_to_cache
from core.batch.model_input import ModelInput
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage

MAX_GATHERED_BYTES = 8 * 2**20
"""Bytes of keys that are gathered at once on a CPU, so that they are still in the CPU cache when
they are multiplied. Larger allocations would also cost page faults on every call."""

MAX_SCORES = 16 * 2**20
"""Scores in memory at once, for layers with soft-capping or sinks."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences that are computed in one padded rectangle."""

    queries: torch.Tensor  # [group, num_queries] token rows, padded with the last one
    blocks: torch.Tensor  # [group, num_blocks] block ids
    mask: torch.Tensor  # [group, 1, num_queries, length] True: the query attends to the token
    tokens: torch.Tensor  # [num_real] token rows of the queries without padding
    rows: torch.Tensor  # [num_real] their indices in the group * num_queries rows


class PagedTorchBackend:
    """See AttentionBackend."""

    def __init__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> None:
        self._storage = storage
        self._layers = layers
        self._windows = {layer.sliding_window for layer in layers}
        self._groups: dict[int | None, list[_Group]] = {}
        self._slots = torch.empty(0, dtype=torch.int64)

    @staticmethod
    def step_nbytes(
        layers: Sequence[LayerSpec], num_tokens: int, num_seqs: int, context: int
    ) -> int:
        """See MeasuredFactory. Counts keys, values, scores and masks of a group in float32.

        There is a mask per sliding window, padded to at most twice the rows and columns. A row has
        one context, so the number of sequences does not matter.
        """
        del num_seqs
        num_masks = len({layer.sliding_window for layer in layers})
        masks = num_masks * 4 * num_tokens * context
        return masks + max(
            2 * MAX_GATHERED_BYTES
            + context * layer.num_kv_heads * (layer.head_dim + layer.value_dim) * 4
            + num_tokens * context * layer.num_heads * (4 + 4 + 1)
            for layer in layers
        )

    def plan(self, batch: ModelInput) -> None:
        """Form the groups, once per sliding window of the model."""
        self._slots = batch.slots
        self._groups = {window: self._group(batch, window) for window in self._windows}

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        spec = self._layers[layer]
        keys, values = self._storage.keys[layer], self._storage.values[layer]
        write_to_cache(keys, key, self._slots)
        write_to_cache(values, value, self._slots)
        output = query.new_empty(query.shape[0], spec.num_heads, spec.value_dim)
        for group in self._groups[spec.sliding_window]:
            result = _attend(query[group.queries], keys, values, group, spec)
            output.index_copy_(0, group.tokens, result.flatten(0, 1).index_select(0, group.rows))
        return output

    def _group(self, batch: ModelInput, window: int | None) -> list[_Group]:
        """Group sequences with similar numbers of queries and of blocks."""
        size = self._storage.block_size
        num_queries = np.diff(batch.query_starts)
        first_block = np.zeros(batch.num_seqs, dtype=np.int64)
        if window is not None:  # skip blocks before the window of the first query
            first_block = np.maximum(batch.context_lens - num_queries - window + 1, 0) // size
        num_blocks = -(-batch.context_lens // size) - first_block
        alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for i in range(batch.num_seqs):
            alike[_size_class(int(num_queries[i])), _size_class(int(num_blocks[i]))].append(i)
        groups = []
        for members in alike.values():
            size = self._group_size(int(num_blocks[members].max()))
            for at in range(0, len(members), size):
                some = np.array(members[at : at + size])
                groups.append(
                    self._padded(batch, some, num_queries, first_block, num_blocks, window)
                )
        return groups

    def _group_size(self, num_blocks: int) -> int:
        """Return the most sequences of ``num_blocks`` blocks that are gathered at once."""
        if self._storage.keys[0].device.type != "cpu":
            return self._storage.num_blocks
        block_nbytes = max(keys[0].nbytes for keys in self._storage.keys)
        return max(1, MAX_GATHERED_BYTES // (num_blocks * block_nbytes))

    def _padded(
        self,
        batch: ModelInput,
        members: np.ndarray[tuple[int], np.dtype[np.int64]],
        num_queries: np.ndarray[tuple[int], np.dtype[np.int64]],
        first_block: np.ndarray[tuple[int], np.dtype[np.int64]],
        num_blocks: np.ndarray[tuple[int], np.dtype[np.int64]],
        window: int | None,
    ) -> _Group:
        size, device = self._storage.block_size, batch.slots.device
        counts, lens = num_queries[members], batch.context_lens[members]
        query = np.arange(counts.max())
        is_real = query < counts[:, None]
        offset = np.minimum(query, counts[:, None] - 1)
        queries = batch.query_starts[members][:, None] + offset
        entries = first_block[members][:, None] + np.arange(num_blocks[members].max())
        # padding repeats the sequence's own last block: another block may contain NaN
        entries = np.minimum(entries, (first_block + num_blocks)[members][:, None] - 1)
        blocks = batch.block_tables[members[:, None], entries]

        q_positions = (lens - counts)[:, None] + offset
        k_positions = (first_block[members] * size)[:, None] + np.arange(blocks.shape[1] * size)
        mask = k_positions[:, None, :] <= q_positions[:, :, None]
        if window is not None:
            mask &= k_positions[:, None, :] > q_positions[:, :, None] - window
        return _Group(
            queries=torch.from_numpy(queries).to(device),
            blocks=torch.from_numpy(blocks).to(device),
            mask=torch.from_numpy(mask[:, None]).to(device),
            tokens=torch.from_numpy(queries[is_real]).to(device),
            rows=torch.from_numpy(np.flatnonzero(is_real)).to(device),
        )


def _size_class(count: int) -> int:
    """Return the class of a count: equal for counts within a factor of two; 1 has its own."""
    return (count - 1).bit_length()


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    group: _Group,
    spec: LayerSpec,
) -> torch.Tensor:
    """Attend ``query`` [group, num_queries, num_heads, dim] to the group's blocks."""
    size, num_queries, num_heads, dim = query.shape
    per_kv_head = num_heads // spec.num_kv_heads
    k, v = _gather(keys, group.blocks), _gather(values, group.blocks)
    # [group, kv_heads, per_kv_head * num_queries, dim]: query heads of a kv head are rows
    q = query.view(size, num_queries, spec.num_kv_heads, per_kv_head, dim)
    q = q.permute(0, 2, 3, 1, 4).reshape(size, spec.num_kv_heads, -1, dim)
    mask = group.mask.repeat(1, 1, per_kv_head, 1) if per_kv_head > 1 else group.mask
    if spec.softcap is not None or spec.sinks is not None:
        output = _attend_in_slices(q, k, v, mask, spec)
    elif num_queries == 1:
        output = _attend_plainly(q, k, v, mask, spec)
    else:
        output = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=spec.scale)
    output = output.view(size, spec.num_kv_heads, per_kv_head, num_queries, spec.value_dim)
    return output.permute(0, 3, 1, 2, 4).reshape(size, num_queries, num_heads, spec.value_dim)


def _attend_in_slices(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """Call ``_attend_plainly`` for at most MAX_SCORES scores at a time."""
    sinks = None
    if spec.sinks is not None:  # one per row; the rows of a query head are adjacent
        num_queries = q.shape[2] * spec.num_kv_heads // spec.num_heads
        sinks = spec.sinks.view(spec.num_kv_heads, -1).repeat_interleave(num_queries, dim=1)
    step = max(1, MAX_SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
    outputs = []
    for at in range(0, q.shape[2], step):
        rows = slice(at, at + step)
        some = None if sinks is None else sinks[:, rows]
        outputs.append(_attend_plainly(q[:, :, rows], k, v, mask[:, :, rows], spec, some))
    return torch.cat(outputs, dim=2)


def _attend_plainly(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    spec: LayerSpec,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend rows ``[group, kv_heads, num_rows, dim]``; ``sinks`` is ``[kv_heads, num_rows]``."""
    scores = (q @ k.transpose(-1, -2)).float().mul_(spec.scale)
    if spec.softcap is not None:
        scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
    scores.masked_fill_(~mask, float("-inf"))
    if sinks is not None:
        sink_column = sinks.expand(len(q), -1, -1)[..., None]
        scores = torch.cat([scores, sink_column], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : k.shape[2]]
    return weights.to(v.dtype) @ v


def _gather(cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Read ``[group, num_blocks]`` blocks as ``[group, kv_heads, length, dim]``."""
    _, num_kv_heads, block_size, dim = cache.shape
    heads = torch.arange(num_kv_heads, device=blocks.device)
    rows = blocks[:, None, :] * num_kv_heads + heads[None, :, None]
    pages = cache.view(-1, block_size * dim).index_select(0, rows.view(-1))
    return pages.view(blocks.shape[0], num_kv_heads, -1, dim)
