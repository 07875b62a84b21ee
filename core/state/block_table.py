"""BlockTable: the KV cache blocks of one sequence, in token order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class BlockTable:
    """Block ids of one sequence, in one array so that a table copies in one operation.

    Entry ``i`` is for tokens ``i * block_size`` to ``(i + 1) * block_size - 1``. Entries of
    computed tokens never change, except that the first ones of a window group are released. A
    released entry repeats the id of the first one that is held: a kernel whose tile begins before
    the window reads, and masks, the sequence's own block.
    """

    __slots__ = ("_ids", "length", "num_released")

    def __init__(self) -> None:
        self._ids: npt.NDArray[np.int32] = np.empty(8, dtype=np.int32)
        self.length = 0
        self.num_released = 0

    def __len__(self) -> int:
        return self.length

    def append(self, block_id: int) -> None:
        """Add the block of the next tokens."""
        if self.length == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        if self.length == self.num_released:
            self._ids[: self.length] = block_id
        self._ids[self.length] = block_id
        self.length += 1

    def replace(self, index: int, block_id: int) -> int:
        """Replace a block in which no token is computed yet; returns the old block id."""
        old = int(self._ids[index])
        self._ids[index] = block_id
        return old

    def release(self, end: int) -> list[int]:
        """Stop holding the blocks before entry ``end``; returns those that were held.

        If the table is shorter, it gets released entries up to ``end``.
        """
        start, held_end = self.num_released, min(end, self.length)
        if end <= start:
            return []
        block_ids: list[int] = self._ids[start:held_end].tolist()
        self.num_released = end
        if end < self.length:
            self._ids[:end] = self._ids[end]
        else:
            while len(self._ids) < end:
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self.length = end
        return block_ids

    def truncate(self, length: int) -> list[int]:
        """Remove the entries from ``length`` on, which are held; returns their block ids."""
        block_ids: list[int] = self._ids[length : self.length].tolist()
        self.length = min(length, self.length)
        return block_ids

    def view(self) -> npt.NDArray[np.int32]:
        """All ids without a copy, valid until the next change."""
        return self._ids[: self.length]

    def held(self) -> list[int]:
        """The blocks that are not released, in token order."""
        block_ids: list[int] = self._ids[self.num_released : self.length].tolist()
        return block_ids

    def first(self, num_blocks: int) -> npt.NDArray[np.int32]:
        """At most ``num_blocks`` ids without a copy, valid until the next change."""
        return self._ids[:num_blocks]

    def clear(self) -> list[int]:
        """Remove all blocks; returns those that were held, in token order."""
        block_ids = self.held()
        self.length = self.num_released = 0
        return block_ids
