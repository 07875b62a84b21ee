"""WindowGroup: the blocks of the layers that share one sliding window. Integers only."""

from __future__ import annotations

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from core.kv.block_pool import BlockPool
from core.state.block_table import BlockTable


@dataclass(frozen=True, slots=True)
class WindowSize:
    """The cache of a window group: its blocks, its window in tokens, its blocks per sequence."""

    num_blocks: int
    window: int
    blocks_per_seq: int


def window_blocks_per_seq(window: int, longest_chunk: int, block_size: int) -> int:
    """Blocks for what a chunk's queries see: any run of ``window - 1 + longest_chunk`` tokens."""
    return -(-(window + longest_chunk - 2) // block_size) + 1


class WindowGroup:
    """Allocates blocks that hold only what a query can still see. Core thread only.

    A table holds ``blocks_per_seq`` blocks at most, from the first one that the next query sees.
    Blocks before are released. They stay in the prefix cache until they are allocated again.
    """

    def __init__(self, size: WindowSize, block_size: int) -> None:
        self.pool = BlockPool(size.num_blocks)
        self._window = size.window
        self.blocks_per_seq = size.blocks_per_seq
        self._block_size = block_size

    def _first_visible(self, num_computed_tokens: int) -> int:
        """First block that the query after ``num_computed_tokens`` tokens, or a later one, sees."""
        return max(num_computed_tokens - self._window + 1, 0) // self._block_size

    def has_room(
        self, num_blocks: int, *, num_spare_blocks: int, num_running: int, num_freed: int = 0
    ) -> bool:
        """Whether a sequence of ``num_blocks`` blocks fits beside ``num_running`` others.

        ``num_spare_blocks`` stay free for them, or as many as they can still get. ``num_freed``
        blocks are in use now and will be free.
        """
        num_used = self.pool.num_blocks - self.pool.num_free - num_freed
        needed = num_used + min(num_blocks, self.blocks_per_seq) + num_spare_blocks
        most = (num_running + 1) * self.blocks_per_seq
        return min(needed, most) <= self.pool.num_blocks

    def prepare(self, table: BlockTable, num_computed_tokens: int, num_blocks: int) -> int:
        """Release what no later query sees; returns the number of blocks to allocate.

        ``num_blocks`` are the blocks of all tokens of the sequence.
        """
        self.pool.release(table.release(self._first_visible(num_computed_tokens)))
        return self._end(table, num_blocks) - len(table)

    def last_missing(self, hashes: ReadOnly[bytes], first: int, end: int) -> int | None:
        """The last block that is not cached, of those that the query after block ``end`` sees.

        The blocks before ``first`` are the sequence's own.
        """
        lowest = max(first, self._first_visible(end * self._block_size))
        missing = (i for i in range(end - 1, lowest - 1, -1) if not self.pool.is_cached(hashes[i]))
        return next(missing, None)

    def adopt(
        self, table: BlockTable, hashes: ReadOnly[bytes], first: int, end: int, num_blocks: int
    ) -> None:
        """Extend the computed blocks from ``first`` to ``end`` with cached ones.

        Blocks of the table that are not computed yet move behind them, so that the next chunk has
        as many as before.
        """
        uncomputed = table.truncate(first)
        lowest = max(first, self._first_visible(end * self._block_size))
        adopted = [self._acquire(hashes[index]) for index in range(lowest, end)]
        self.pool.release(table.release(self._first_visible(end * self._block_size)))
        for block_id in adopted:
            table.append(block_id)
        num_kept = max(0, min(self._end(table, num_blocks) - end, len(uncomputed)))
        for block_id in uncomputed[:num_kept]:
            table.append(block_id)
        self.pool.release(uncomputed[num_kept:])

    def cache(self, table: BlockTable, hashes: ReadOnly[bytes], first: int, end: int) -> None:
        """Cache blocks ``first`` to ``end`` of a table, except released ones."""
        block_ids = table.view()
        for index in range(max(first, table.num_released), end):
            self.pool.cache(int(block_ids[index]), hashes[index])

    def _end(self, table: BlockTable, num_blocks: int) -> int:
        return min(num_blocks, table.num_released + self.blocks_per_seq)

    def _acquire(self, block_hash: bytes) -> int:
        block_id = self.pool.acquire_cached(block_hash)
        assert block_id is not None
        return block_id
