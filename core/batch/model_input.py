"""ModelInput: the flattened tensors of one step.

The runner makes it of the scheduled sequences and their block tables. The attention backend plans
by its arrays, and what computes the model reads its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from core.state.block_table import BlockTable
from core.state.sequence import Sequence
from core.system.pinned import Uploads


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
    wants_best: bool = False
    """Whether the best tokens are all that is used. A forward pass that finds them may leave the
    logits undefined."""
    layout: object | None = None
    """Steps that have it in common follow each other, and every sequence computes one token in
    each. Their tensors are the same and change in place. All tokens stay in the same blocks, so
    that positions, slots and lengths grow by one."""

    @property
    def num_seqs(self) -> int:
        return len(self.context_lens)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of tokens and of logits. ``len`` of a tensor takes torch ten times as long."""
        return self.token_ids.shape[0], self.logits_indices.shape[0]

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
        """A copy with its tensors on ``device``: one transfer, without waiting for it.

        Returns the batch itself on a CPU.
        """
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
            layout=None,
        )


class ModelInputs:
    """Makes the input of each step. Core thread only.

    A decode step that follows one of the same sequences is that one, changed in place: an input is
    valid until the next one is made.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._sequences: list[Sequence] = []  # of the last step, if it can be continued
        self._epochs: list[int] = []
        self._last: ModelInput | None = None
        self._token_ids: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # its memory
        self._places: npt.NDArray[np.int64] = np.zeros((3, 0), dtype=np.int64)
        self._num_left = 0  # steps until a sequence enters its next block

    def of(
        self,
        scheduled: list[tuple[Sequence, int]],
        logits_indices: list[int],
        *,
        wants_best: bool,
        rows_in_flight: Mapping[Sequence, int] | None = None,
    ) -> ModelInput:
        """See ``build_model_input``."""
        last, self._last = self._last, None  # if this fails, the next step begins anew
        if last is None or not self._is_next(last, scheduled, logits_indices, wants_best):
            last = build_model_input(
                scheduled,
                logits_indices,
                block_size=self._block_size,
                rows_in_flight=rows_in_flight,
                wants_best=wants_best,
            )
            if last.layout is None:
                self._sequences = []
                return last
            last = self._begun(last, scheduled)
        else:
            self._token_ids[:] = _token_ids(scheduled, rows_in_flight)
            last = self._advanced(last)
        self._last = last
        return last

    def _begun(self, batch: ModelInput, scheduled: list[tuple[Sequence, int]]) -> ModelInput:
        """The same step, with what grows by one in one array: an operation moves all on."""
        self._sequences = [sequence for sequence, _ in scheduled]
        self._epochs = [sequence.epoch for sequence in self._sequences]
        self._token_ids = batch.token_ids.numpy()
        positions, slots = batch.positions.numpy(), batch.slots.numpy()
        self._places = np.stack([positions, slots, batch.context_lens])
        self._num_left = self._steps_left()
        return replace(
            batch,
            positions=torch.from_numpy(self._places[0]),
            slots=torch.from_numpy(self._places[1]),
            context_lens=self._places[2],
        )

    def _is_next(
        self,
        last: ModelInput,
        scheduled: list[tuple[Sequence, int]],
        logits_indices: list[int],
        wants_best: bool,
    ) -> bool:
        """Whether every sequence of the last step computes its next token, and no others do."""
        sequences = self._sequences
        return (
            len(scheduled) == len(sequences) == len(logits_indices)
            and last.wants_best == wants_best
            and all(count == 1 for _, count in scheduled)
            and [sequence for sequence, _ in scheduled] == sequences
            and [sequence.epoch for sequence in sequences] == self._epochs
            and [each.num_computed_tokens for each in sequences] == self._places[2].tolist()
        )

    def _advanced(self, last: ModelInput) -> ModelInput:
        self._places += 1
        if self._num_left:
            self._num_left -= 1
            return last
        positions, slots, lens = self._places
        tables, size = last.block_tables, self._block_size
        width = -(-int(lens.max()) // size)
        if width > tables.shape[1]:
            tables = np.pad(tables, ((0, 0), (0, width - tables.shape[1])))
        for row in np.flatnonzero(positions % size == 0).tolist():
            block = int(positions[row]) // size
            block_id = int(self._sequences[row].block_table.view()[block])
            tables[row, block] = block_id
            slots[row] = block_id * size
        self._num_left = self._steps_left()
        return replace(last, block_tables=tables, layout=object())

    def _steps_left(self) -> int:
        return int((-self._places[2] % self._block_size).min())


def build_model_input(
    scheduled: list[tuple[Sequence, int]],
    logits_indices: list[int],
    *,
    block_size: int,
    rows_in_flight: Mapping[Sequence, int] | None = None,
    wants_best: bool = False,
) -> ModelInput:
    """Flatten (sequence, number of tokens) pairs. Their block tables must be long enough.

    ``rows_in_flight`` has the row of LastTokens for each sequence with a token in flight.
    """
    token_ids = _token_ids(scheduled, rows_in_flight)
    num_seqs = len(scheduled)
    computed = np.array([s.num_computed_tokens for s, _ in scheduled])
    if len(token_ids) == num_seqs:  # nothing to repeat
        query_starts = np.arange(num_seqs + 1)
        rows, positions, context_lens = query_starts[:-1], computed, computed + 1
    else:
        counts = np.array([n for _, n in scheduled])
        query_starts = np.zeros(num_seqs + 1, dtype=np.int64)
        np.cumsum(counts, out=query_starts[1:])
        rows = np.repeat(np.arange(num_seqs), counts)
        positions = np.arange(len(token_ids)) + np.repeat(computed - query_starts[:-1], counts)
        context_lens = computed + counts
    is_decode = len(token_ids) == num_seqs == len(logits_indices)
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
        wants_best=wants_best,
        layout=object() if is_decode and len(all_tables) == 1 else None,
    )


def _token_ids(
    scheduled: list[tuple[Sequence, int]], rows_in_flight: Mapping[Sequence, int] | None
) -> list[int]:
    """The ids of all tokens; -1 - row for a token in flight."""
    token_ids: list[int] = []
    for sequence, count in scheduled:
        start, known = sequence.num_computed_tokens, sequence.token_ids
        if start + count <= len(known):
            token_ids += known[start : start + count]
        else:
            assert rows_in_flight is not None
            token_ids += (*known[start:], -1 - rows_in_flight[sequence])
    return token_ids


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
