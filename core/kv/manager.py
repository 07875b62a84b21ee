"""KVCacheManager: allocates KV cache blocks to sequences and shares prefixes. Integers only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from core.block_table import BlockTable
from core.kv.block_pool import BlockPool
from core.kv.prefix import block_hash, root_hash
from core.sequence import Sequence


class KVCacheManager:
    """Allocates and frees the blocks of sequences, and manages the prefix cache.

    Only full blocks are shared, so a block that is being filled has one owner and is never
    copied. A block enters the prefix cache when the step that fills it is scheduled: every layer
    of a step writes all keys and values before it reads any, so sequences of one step can share
    it. If the step fails, ``drop_cached`` drops such blocks. Core thread only.
    """

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.block_size = block_size
        self._pool = BlockPool(num_blocks)
        self._enable_prefix_caching = enable_prefix_caching

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no sequence uses, cached ones included."""
        return self._pool.num_free

    def reuse_cached(self, sequence: Sequence) -> int:
        """Extend the computed tokens by cached blocks; returns the number of tokens reused.

        Applies to a new sequence, to one that resumes after preemption, and to one whose next
        blocks another sequence computed meanwhile. A cached block may be computed in the step
        that is being scheduled: the sequence must then be in that step too, after its writer.
        The last token is never reused, because its logits are needed. A sequence with prompt
        log-probabilities reuses nothing, because it needs the logits of every position.
        """
        if not self._uses_prefix_cache(sequence):
            return 0
        size, table = self.block_size, sequence.block_table
        first, offset = divmod(sequence.num_computed_tokens, size)
        if offset:
            return 0
        index, end = first, _num_shareable_blocks(sequence, size)
        while index < end:
            block_id = self._pool.acquire_cached(self._hash_of(sequence, index))
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
        """Allocate blocks for all pending tokens, or none and return False if too few are free."""
        table = sequence.block_table
        num_tokens = sequence.num_computed_tokens + sequence.num_pending_tokens
        missing = -(-num_tokens // self.block_size) - len(table)
        if missing <= 0:
            return True
        if missing > self._pool.num_free:
            return False
        for _ in range(missing):
            table.append(self._pool.allocate())
        return True

    def short_of_blocks(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """The sequences whose blocks do not hold all their tokens, in their order."""
        size = self.block_size
        return [
            sequence
            for sequence in sequences
            if len(sequence.token_ids) + sequence.num_in_flight > sequence.block_table.length * size
        ]

    def has_room(self, sequence: Sequence, *, num_spare_blocks: int) -> bool:
        """Whether a sequence without blocks fits and ``num_spare_blocks`` blocks stay free.

        Cached blocks that are in use cost nothing; they are counted from the first block up to
        the first that is not in use, and only as far as needed, because this runs in every step
        while a sequence waits.
        """
        num_blocks = -(-sequence.num_tokens // self.block_size)
        missing = num_blocks + num_spare_blocks - self._pool.num_free
        if missing > 0 and self._uses_prefix_cache(sequence):
            most = min(missing, _num_shareable_blocks(sequence, self.block_size))
            in_use = (
                self._pool.is_cached_in_use(self._hash_of(sequence, index)) for index in range(most)
            )
            missing -= sum(takewhile(bool, in_use))
        return missing <= 0

    def cache_blocks(self, sequence: Sequence, num_tokens: int) -> None:
        """Put the full blocks of the first ``num_tokens`` tokens into the prefix cache.

        A block whose last token is in flight has no hash yet. The next call caches it, and
        therefore begins with the last computed block.
        """
        first = max(sequence.num_computed_tokens - 1, 0) // self.block_size
        end = min(num_tokens, len(sequence.token_ids)) // self.block_size
        if first >= end or not self._enable_prefix_caching:
            return
        for index, block_id in enumerate(sequence.block_table.view()[first:end].tolist(), first):
            self._pool.cache(block_id, self._hash_of(sequence, index))

    def cache_decoded_blocks(self, sequences: Iterable[Sequence]) -> None:
        """``cache_blocks`` for sequences that compute one token; few of them fill a block."""
        size = self.block_size
        for sequence in [
            sequence
            for sequence in sequences
            if len(sequence.token_ids) // size * size >= sequence.num_computed_tokens
        ]:
            self.cache_blocks(sequence, sequence.num_computed_tokens + 1)

    def free(self, sequence: Sequence) -> None:
        """Free all blocks, the last first: the beginning of a prefix is the most useful.

        The sequence gets a new table. The old one stays as it was, for steps in flight.
        """
        table, sequence.block_table = sequence.block_table, BlockTable()
        self._pool.release(reversed(table.view().tolist()))
        sequence.num_computed_tokens = 0

    def blocks_between(self, table: BlockTable, start: int, end: int) -> list[int]:
        """The blocks in ``table`` of tokens ``start`` to ``end - 1``."""
        size = self.block_size
        block_ids: list[int] = table.view()[start // size : -(-end // size)].tolist()
        return block_ids

    def drop_cached(self, block_ids: Iterable[int]) -> None:
        """Drop blocks from the prefix cache: they were not computed, or contain NaN."""
        self._pool.drop_cached(block_ids)

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Assert that these sequences use all blocks that are not free."""
        tables = [sequence.block_table.view().tolist() for sequence in sequences]
        self._pool.check(tables)

    def _uses_prefix_cache(self, sequence: Sequence) -> bool:
        return self._enable_prefix_caching and sequence.params.prompt_logprobs is None

    def _hash_of(self, sequence: Sequence, index: int) -> bytes:
        """Hash of block ``index``, computed once: known tokens never change."""
        hashes = sequence.block_hashes
        while len(hashes) <= index:
            start = len(hashes) * self.block_size
            parent = hashes[-1] if hashes else root_hash(sequence.request.cache_salt)
            hashes.append(block_hash(parent, sequence.token_ids[start : start + self.block_size]))
        return hashes[index]


def _num_shareable_blocks(sequence: Sequence, block_size: int) -> int:
    """Full blocks without the last token, whose logits are needed."""
    return (sequence.num_tokens - 1) // block_size
