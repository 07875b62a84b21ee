"""KVCacheManager: the scheduler's only door to the cache. Integers only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from core.kv.block_pool import BlockPool
from core.kv.prefix import block_hash, root_hash
from core.sequence import Sequence


class KVCacheManager:
    """Gives sequences their blocks, finds shared prefixes, takes blocks back.

    Only full blocks are shared, so a block that is still being filled has one owner and never
    needs a copy. A block is published when the step that fills it is scheduled: within a step
    every layer writes all keys and values before any query reads them, so that sequences
    admitted in one step already share. ``invalidate`` takes that promise back when the step
    fails. Owned by the core thread.
    """

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.block_size = block_size
        self._pool = BlockPool(num_blocks)
        self._enable_prefix_caching = enable_prefix_caching

    @property
    def num_blocks(self) -> int:
        """All blocks of the cache."""
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return self._pool.num_free

    def adopt(self, sequence: Sequence) -> int:
        """Take over cached blocks at the sequence's frontier; returns the tokens thus saved.

        Serves a new sequence, one that resumes after preemption, and one whose next block was
        meanwhile computed by another with the same prefix. It may be one that is computed only in
        the step being planned: the adopter must then be in that step too, and fail if it fails.
        The last token is always left to be computed, since its logits are wanted. Prompt
        log-probabilities need every position.
        """
        if not self._shares(sequence):
            return 0
        size, table = self.block_size, sequence.block_table
        first, offset = divmod(sequence.num_computed_tokens, size)
        if offset:
            return 0
        index, end = first, _num_shareable_blocks(sequence, size)
        while index < end:
            block_id = self._pool.take_cached(self._hash_of(sequence, index))
            if block_id is None:
                break
            if index < len(table):
                self._pool.release([table.replace(index, block_id)])
            else:
                table.append(block_id)
            index += 1
        sequence.num_computed_tokens = index * size
        return (index - first) * size

    def allocate(self, sequence: Sequence) -> bool:
        """Make room for every pending token; False, and nothing changed, if there is too little."""
        table = sequence.block_table
        num_tokens = sequence.num_computed_tokens + sequence.num_pending_tokens
        missing = -(-num_tokens // self.block_size) - len(table)
        if missing <= 0:
            return True
        if missing > self._pool.num_free:
            return False
        for _ in range(missing):
            table.append(self._pool.take_free())
        return True

    def short_of_blocks(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Those that may have to ``allocate`` for their pending tokens, in their order."""
        size = self.block_size
        return [
            sequence
            for sequence in sequences
            if len(sequence.token_ids) + sequence.num_in_flight > sequence.block_table.length * size
        ]

    def has_room(self, sequence: Sequence, *, num_spare_blocks: int) -> bool:
        """Whether a sequence without blocks can adopt and allocate, and leave that many free.

        Changes nothing and looks no further than it must, since a waiting sequence is asked about
        in every step: of what others computed it counts what they hold, from the first block on,
        which takes no room. (One they hold behind one that they do not is rare, and not counted.)
        """
        num_blocks = -(-sequence.num_tokens // self.block_size)
        missing = num_blocks + num_spare_blocks - self._pool.num_free
        if missing > 0 and self._shares(sequence):
            most = min(missing, _num_shareable_blocks(sequence, self.block_size))
            held = (self._pool.is_held(self._hash_of(sequence, index)) for index in range(most))
            missing -= sum(takewhile(bool, held))
        return missing <= 0

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Make the full blocks among the first ``num_tokens`` tokens findable.

        A block whose last token is in flight has no address yet. It follows when that is known,
        which is why the last block that was computed is looked at again.
        """
        first = max(sequence.num_computed_tokens - 1, 0) // self.block_size
        end = min(num_tokens, len(sequence.token_ids)) // self.block_size
        if first >= end or not self._enable_prefix_caching:
            return
        for index, block_id in enumerate(sequence.block_table.view()[first:end].tolist(), first):
            self._pool.publish(block_id, self._hash_of(sequence, index))

    def publish_singles(self, sequences: Iterable[Sequence]) -> None:
        """``publish`` for sequences that compute one token, few of which have a block to show."""
        size = self.block_size
        for sequence in [
            sequence
            for sequence in sequences
            if len(sequence.token_ids) // size * size >= sequence.num_computed_tokens
        ]:
            self.publish(sequence, sequence.num_computed_tokens + 1)

    def free(self, sequence: Sequence) -> None:
        """Take all blocks back; the tail is reused first, since prefixes are worth more."""
        self._pool.release(reversed(sequence.block_table.clear()))
        sequence.num_computed_tokens = 0

    def drop_cached(self, sequence: Sequence) -> list[int]:
        """Let nobody find this sequence's blocks any more: they may hold what is no number.

        Whoever shares them computes with the same numbers, fails too and is dropped in turn.
        Returns the blocks.
        """
        block_ids: list[int] = sequence.block_table.view().tolist()
        self._pool.forget(block_ids)
        return block_ids

    def free_among(self, block_ids: Iterable[int]) -> list[int]:
        """Those of the blocks that no sequence holds."""
        return [block_id for block_id in block_ids if self._pool.is_free(block_id)]

    def invalidate(self) -> None:
        """Trust no cached content any more (a step failed half-way)."""
        self._pool.forget_all()

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Assert that these sequences hold all blocks in use."""
        tables = [sequence.block_table.view().tolist() for sequence in sequences]
        self._pool.check(tables)

    def _shares(self, sequence: Sequence) -> bool:
        """Whether it may take over what others computed."""
        return self._enable_prefix_caching and sequence.params.prompt_logprobs is None

    def _hash_of(self, sequence: Sequence, index: int) -> bytes:
        """Address of block ``index``; computed once, since known tokens never change."""
        hashes = sequence.block_hashes
        while len(hashes) <= index:
            start = len(hashes) * self.block_size
            parent = hashes[-1] if hashes else root_hash(sequence.request.cache_salt)
            hashes.append(block_hash(parent, sequence.token_ids[start : start + self.block_size]))
        return hashes[index]


def _num_shareable_blocks(sequence: Sequence, block_size: int) -> int:
    """Full blocks, without the one that holds the last token: its logits are wanted."""
    return (sequence.num_tokens - 1) // block_size
