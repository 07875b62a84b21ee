"""BlockTable: the KV cache blocks of one sequence, in token order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class BlockTable:
    """Block ids of one sequence, in one array so that a table copies in one operation.

    Entry ``i`` holds tokens ``i * block_size`` to ``(i + 1) * block_size - 1``. Entries of
    computed tokens never change.
    """

    __slots__ = ("_ids", "length")

    def __init__(self) -> None:
        self._ids: npt.NDArray[np.int32] = np.empty(8, dtype=np.int32)
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def append(self, block_id: int) -> None:
        """Add the block of the next tokens."""
        if self.length == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        self._ids[self.length] = block_id
        self.length += 1

    def replace(self, index: int, block_id: int) -> int:
        """Replace a block in which no token is computed yet; returns the old block id."""
        old = int(self._ids[index])
        self._ids[index] = block_id
        return old

    def view(self) -> npt.NDArray[np.int32]:
        """All ids without a copy, valid until the next change."""
        return self._ids[: self.length]

    def first(self, num_blocks: int) -> npt.NDArray[np.int32]:
        """At most ``num_blocks`` ids without a copy, valid until the next change."""
        return self._ids[:num_blocks]

    def clear(self) -> list[int]:
        """Remove all blocks; returns them in token order."""
        block_ids: list[int] = self._ids[: self.length].tolist()
        self.length = 0
        return block_ids
