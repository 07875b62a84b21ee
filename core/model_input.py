"""ModelInput: the flattened tensors of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from core.block_table import BlockTable
from core.pinned import Uploads
from core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ModelInput:
    """All scheduled tokens of a step in one row, sequence after sequence.

    The NumPy arrays stay on the host for the attention plan; the tensors are built on the host,
    and ``on`` copies them to a device. Sequence ``i`` has tokens ``query_starts[i]`` to
    ``query_starts[i + 1]``, which are the last of its ``context_lens[i]`` tokens. A negative token
    id is a token in flight: see LastTokens.
    """

    token_ids: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    slots: torch.Tensor  # [num_tokens] int64: block_id * block_size + offset, full group
    logits_indices: torch.Tensor  # [num_logits] int64: tokens whose logits are needed
    query_starts: npt.NDArray[np.int64]  # [num_seqs + 1]
    context_lens: npt.NDArray[np.int64]  # [num_seqs]
    block_tables: npt.NDArray[np.int64]  # [num_seqs, max_blocks], padded with 0, full group
    window_slots: tuple[torch.Tensor, ...] = ()  # those of each window group
    window_tables: tuple[npt.NDArray[np.int64], ...] = ()

    @property
    def num_seqs(self) -> int:
        return len(self.context_lens)

    @property
    def is_decode(self) -> bool:
        """Whether every sequence computes one token and samples."""
        num_seqs = self.num_seqs
        return len(self.token_ids) == num_seqs == len(self.logits_indices)

    def of_group(self, group: int) -> ModelInput:
        """The step with the slots and the block tables of a group; 0 is the full one."""
        if group == 0:
            return self
        return replace(
            self, slots=self.window_slots[group - 1], block_tables=self.window_tables[group - 1]
        )

    def on(self, device: torch.device, uploads: Uploads | None = None) -> ModelInput:
        """A copy with its tensors on ``device``: one transfer, without waiting for it."""
        if device.type == "cpu":
            return self
        own = (self.token_ids, self.positions, self.slots, self.logits_indices)
        tensors = (*own, *self.window_slots)
        sizes = [len(tensor) for tensor in tensors]
        uploads = uploads or Uploads(device)
        num_words = 2 * sum(sizes)
        target = uploads.take(num_words)[:num_words].view(np.int64)
        np.concatenate([tensor.numpy() for tensor in tensors], out=target)
        packed = torch.empty(sum(sizes), dtype=torch.int64, device=device)
        uploads.send(num_words, packed.view(torch.int32))
        token_ids, positions, slots, logits_indices, *window_slots = torch.split(packed, sizes)
        return replace(
            self,
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            logits_indices=logits_indices,
            window_slots=tuple(window_slots),
        )


def build_model_input(
    scheduled: list[tuple[Sequence, int]],
    logits_indices: list[int],
    *,
    block_size: int,
    rows_in_flight: Mapping[Sequence, int] | None = None,
) -> ModelInput:
    """Flatten (sequence, number of tokens) pairs. Their block tables must be long enough.

    ``rows_in_flight`` has the row of LastTokens for each sequence with a token in flight.
    """
    token_ids: list[int] = []
    for sequence, count in scheduled:
        start, known = sequence.num_computed_tokens, sequence.token_ids
        token_ids += known[start : start + count]
        if start + count > len(known):
            assert rows_in_flight is not None
            token_ids.append(-1 - rows_in_flight[sequence])

    num_seqs = len(scheduled)
    computed = np.array([s.num_computed_tokens for s, _ in scheduled])
    if len(token_ids) == num_seqs:  # decode: nothing to repeat
        query_starts = np.arange(num_seqs + 1)
        rows, positions, context_lens = query_starts[:-1], computed, computed + 1
    else:
        counts = np.array([n for _, n in scheduled])
        query_starts = np.zeros(num_seqs + 1, dtype=np.int64)
        np.cumsum(counts, out=query_starts[1:])
        rows = np.repeat(np.arange(num_seqs), counts)
        positions = np.arange(len(token_ids)) + np.repeat(computed - query_starts[:-1], counts)
        context_lens = computed + counts
    blocks = positions // block_size
    all_tables = [
        _block_tables(list(tables), context_lens, block_size)
        for tables in zip(*(s.block_tables for s, _ in scheduled), strict=True)
    ]
    all_slots = [
        torch.from_numpy((tables[rows, blocks] - blocks) * block_size + positions)
        for tables in all_tables
    ]
    return ModelInput(
        token_ids=torch.from_numpy(np.array(token_ids, dtype=np.int64)),
        positions=torch.from_numpy(positions),
        slots=all_slots[0],
        logits_indices=torch.from_numpy(np.array(logits_indices, dtype=np.int64)),
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=all_tables[0],
        window_slots=tuple(all_slots[1:]),
        window_tables=tuple(all_tables[1:]),
    )


def _block_tables(
    tables: list[BlockTable], context_lens: npt.NDArray[np.int64], block_size: int
) -> npt.NDArray[np.int64]:
    """The block ids of each context, [num_seqs, max_blocks], padded with 0."""
    num_blocks = -(-context_lens // block_size)
    filled = np.arange(num_blocks.max()) < num_blocks[:, None]
    block_tables = np.zeros(filled.shape, dtype=np.int64)
    block_tables[filled] = np.concatenate(
        [table.first(length) for table, length in zip(tables, num_blocks.tolist(), strict=True)]
    )
    return block_tables
