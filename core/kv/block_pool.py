"""BlockPool: the one owner of the free list, the reference counts and the hash index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class BlockPool:
    """Counts references to ``num_blocks`` blocks and finds cached ones by content hash.

    A block that nobody refers to is free, but keeps its content and its place in the index
    until it is handed out again, least recently freed first. Owned by the core thread.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._num_refs = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._index: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, cached ones included."""
        return len(self._free)

    def is_free(self, block_id: int) -> bool:
        """Whether nobody refers to the block."""
        return self._num_refs[block_id] == 0

    def is_held(self, block_hash: bytes) -> bool:
        """Whether there is a block with this content and somebody refers to it."""
        block_id = self._index.get(block_hash)
        return block_id is not None and self._num_refs[block_id] > 0

    def take_free(self) -> int:
        """Hand out the least valuable free block, forgetting what it held."""
        block_id, _ = self._free.popitem(last=False)
        self._forget(block_id)
        self._num_refs[block_id] = 1
        return block_id

    def take_cached(self, block_hash: bytes) -> int | None:
        """Add a reference to the block with this content, if there is one."""
        block_id = self._index.get(block_hash)
        if block_id is None:
            return None
        if self._num_refs[block_id] == 0:
            del self._free[block_id]
        self._num_refs[block_id] += 1
        return block_id

    def publish(self, block_id: int, block_hash: bytes) -> None:
        """Make a block in use findable. The first block with a content stays the one found."""
        assert self._num_refs[block_id] > 0
        if self._hashes[block_id] is None and block_hash not in self._index:
            self._hashes[block_id] = block_hash
            self._index[block_hash] = block_id

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one reference to each. Those given first are reused first once they are free."""
        for block_id in block_ids:
            assert self._num_refs[block_id] > 0
            self._num_refs[block_id] -= 1
            if self._num_refs[block_id] == 0:
                self._free[block_id] = None
                if self._hashes[block_id] is None:
                    self._free.move_to_end(block_id, last=False)

    def forget(self, block_ids: Iterable[int]) -> None:
        """Take these out of the index: what they hold will not be found again."""
        for block_id in block_ids:
            self._forget(block_id)

    def forget_all(self) -> None:
        """Empty the index: no content written so far will be found again."""
        self.forget(list(self._index.values()))

    def _forget(self, block_id: int) -> None:
        block_hash = self._hashes[block_id]
        if block_hash is not None:
            del self._index[block_hash]
            self._hashes[block_id] = None

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Assert that the given block tables are all the references there are."""
        expected = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                expected[block_id] += 1
        assert expected == self._num_refs
        assert {b for b, refs in enumerate(expected) if refs == 0} == set(self._free)
        assert self._index == {h: b for b, h in enumerate(self._hashes) if h is not None}
