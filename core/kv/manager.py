"""KVCacheManager: allocates KV cache blocks to sequences and shares prefixes. Integers only.

The scheduler calls it. A sequence's block table says where attention reads and writes; the tensors
behind the numbers are in ``core.kv.storage``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as ReadOnly
from itertools import accumulate, takewhile

from core.contract.messages import CacheMissReason, PrefixMiss
from core.kv.block_pool import BlockPool, block_hash, root_hash
from core.kv.window_group import WindowGroup, WindowSize
from core.state.block_table import BlockTable
from core.state.sequence import Sequence


class KVCacheManager:
    """Allocates and frees the blocks of sequences, and manages the prefix cache.

    Only full blocks are shared, so a block that is being filled has one owner and is never
    copied. A block enters the prefix cache when the step that fills it is scheduled: every layer
    of a step writes all keys and values before it reads any, so sequences of one step can share
    it. If the step fails, ``drop_cached`` drops such blocks. Core thread only.

    Layers form groups, and a sequence has a block table in each. The full group holds every token.
    A window group holds what its layers can still see. In a table block ids count from 0. Across
    groups a block has a number: those of the full group come first.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool,
        windows: Iterable[WindowSize] = (),
    ) -> None:
        """``num_blocks`` is the full group's; ``windows`` are the groups after it."""
        self.block_size = block_size
        self._num_blocks, self._sizes = num_blocks, tuple(windows)
        self.restart()
        counts = [pool.num_blocks for pool in self._pools]
        self._bases = list(accumulate(counts[:-1], initial=0))  # first numbers of the groups
        self._enable_prefix_caching = enable_prefix_caching

    @property
    def num_groups(self) -> int:
        return len(self._pools)

    @property
    def num_blocks(self) -> int:
        """Blocks of all groups."""
        return sum(pool.num_blocks for pool in self._pools)

    @property
    def num_blocks_ever_used(self) -> list[int]:
        """Number of blocks of each group, from the first on, that were allocated at some time."""
        return [pool.num_ever_used for pool in self._pools]

    @property
    def num_free_blocks(self) -> int:
        """Blocks of all groups that no sequence uses, cached ones included."""
        return sum(pool.num_free for pool in self._pools)

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
        end = self._longest_hit(sequence, first)
        for index in range(first, end):
            block_id = self._pool.acquire_cached(sequence.block_hashes[index])
            assert block_id is not None
            if index < len(table):
                self._pool.release([table.replace(index, block_id)])
            else:
                table.append(block_id)
        if end > first:
            num_blocks = -(-sequence.num_tokens // size)
            for group, own in zip(self._windows, sequence.block_tables[1:], strict=True):
                group.adopt(own, sequence.block_hashes, first, end, num_blocks)
        sequence.num_computed_tokens = end * size
        return (end - first) * size

    def _longest_hit(self, sequence: Sequence, first: int) -> int:
        """Index after the last block that can be reused.

        The full group needs all blocks from ``first`` on. A window group needs those that the next
        query sees; without them the hit ends at the last one that is missing, or earlier.
        """
        end, limit = first, _num_shareable_blocks(sequence, self.block_size)
        while end < limit and self._pool.is_cached(self._hash_of(sequence, end)):
            end += 1
        hashes = sequence.block_hashes
        is_hit = not self._windows
        while end > first and not is_hit:
            is_hit = True
            for group in self._windows:
                missing = group.last_missing(hashes, first, end)
                if missing is not None:
                    end, is_hit = missing, False
        return end

    def miss_of(self, sequence: Sequence) -> PrefixMiss:
        """Why ``reuse_cached`` has found no more of a waiting sequence. Before ``allocate``."""
        index = sequence.num_computed_tokens // self.block_size
        return PrefixMiss(self._why_missing(sequence, index), index)

    def _why_missing(self, sequence: Sequence, index: int) -> CacheMissReason:
        if not self._enable_prefix_caching:
            return "disabled"
        if not self._uses_prefix_cache(sequence):
            return "prompt_logprobs"
        if index >= _num_shareable_blocks(sequence, self.block_size):
            return "last_block"
        hashed = self._hash_of(sequence, index)
        if self._pool.is_cached(hashed):
            return "window"
        if self._pool.was_evicted(hashed):
            return "evicted"
        return "other_salt" if self._pool.has_content(hashed) else "never_seen"

    def allocate(self, sequence: Sequence) -> bool:
        """Allocate blocks for all pending tokens, or none and return False if too few are free.

        Window groups first release what no later query sees, and get blocks for the next chunk.
        """
        num_tokens = sequence.num_computed_tokens + sequence.num_pending_tokens
        num_blocks = -(-num_tokens // self.block_size)
        missing = [num_blocks - len(sequence.block_table)]
        for group, table in zip(self._windows, sequence.block_tables[1:], strict=True):
            missing.append(group.prepare(table, sequence.num_computed_tokens, num_blocks))
        if any(n > pool.num_free for n, pool in zip(missing, self._pools, strict=True)):
            return False
        for n, pool, table in zip(missing, self._pools, sequence.block_tables, strict=True):
            for _ in range(n):
                table.append(pool.allocate())
        return True

    def short_of_blocks(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """The sequences whose blocks do not hold all their tokens, in their order."""
        size = self.block_size
        if self._windows:
            return [
                sequence
                for sequence in sequences
                if sequence.num_tokens > min(map(len, sequence.block_tables)) * size
            ]
        return [
            sequence
            for sequence in sequences
            if len(sequence.token_ids) + sequence.num_in_flight > sequence.block_table.length * size
        ]

    @property
    def num_used_token_blocks(self) -> int:
        """Blocks of the full group that sequences use; each stands for ``block_size`` tokens."""
        return self._pool.num_blocks - self._pool.num_free

    def has_room(
        self,
        sequence: Sequence,
        *,
        num_spare_blocks: int,
        num_running: int = 0,
        release: Release | None = None,
    ) -> bool:
        """Whether a sequence without blocks fits and ``num_spare_blocks`` blocks stay free.

        ``release`` is what others give up before. A window group needs no more spare blocks than
        the ``num_running`` sequences that keep theirs can still get there. Cached blocks that stay
        in use cost nothing; they are counted from the first block up to the first that does not,
        and only as far as needed, because admission asks this of many waiting sequences in one
        step.
        """
        num_blocks = -(-sequence.num_tokens // self.block_size)
        freed = [release.freed(group) if release else set() for group in range(self.num_groups)]
        if not all(
            window.has_room(
                num_blocks,
                num_spare_blocks=num_spare_blocks,
                num_running=num_running,
                num_freed=len(window_freed),
            )
            for window, window_freed in zip(self._windows, freed[1:], strict=True)
        ):
            return False
        missing = num_blocks + num_spare_blocks - self._pool.num_free - len(freed[0])
        if missing > 0 and self._uses_prefix_cache(sequence):
            most = min(missing, _num_shareable_blocks(sequence, self.block_size))
            in_use = (
                self._pool.is_cached_in_use(self._hash_of(sequence, index), freed[0])
                for index in range(most)
            )
            num_shared = sum(takewhile(bool, in_use))
            if self._windows and num_shared == missing:  # fewer do not suffice
                num_shared = min(num_shared, self._longest_hit(sequence, 0))
            missing -= num_shared
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
        for group, table in zip(self._windows, sequence.block_tables[1:], strict=True):
            group.cache(table, sequence.block_hashes, first, end)

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

        The sequence gets new tables. The old ones stay as they were, for steps in flight.
        """
        for pool, table in zip(self._pools, sequence.block_tables, strict=True):
            pool.release(reversed(table.held()))
        sequence.reset_tables()
        sequence.num_computed_tokens = 0

    def release(self) -> Release:
        """Return an empty Release; its ``add`` adds a sequence."""
        return Release(self._pools)

    def blocks_of(self, sequence: Sequence) -> list[int]:
        """The numbers of the blocks that a sequence holds."""
        return [
            base + block_id
            for base, table in zip(self._bases, sequence.block_tables, strict=True)
            for block_id in table.held()
        ]

    def blocks_between(self, tables: ReadOnly[BlockTable], start: int, end: int) -> list[int]:
        """The numbers of the blocks in ``tables`` of tokens ``start`` to ``end - 1``.

        If a window group has released one of them, these are all blocks of the group.
        """
        first, last = start // self.block_size, -(-end // self.block_size)
        numbers: list[int] = []
        for base, pool, table in zip(self._bases, self._pools, tables, strict=True):
            if table.num_released > first:
                numbers += range(base, base + pool.num_blocks)
            else:
                numbers += (base + table.view()[first:last]).tolist()
        return numbers

    def drop_cached(self, numbers: Iterable[int]) -> None:
        """Drop blocks from the prefix cache: they were not computed, or contain NaN."""
        for number in numbers:
            group = bisect_right(self._bases, number) - 1
            self._pools[group].drop_cached([number - self._bases[group]])

    def restart(self) -> None:
        """Free all blocks and empty the prefix cache, whatever state the counts are in."""
        self._pool = BlockPool(self._num_blocks)
        self._windows = [WindowGroup(size, self.block_size) for size in self._sizes]
        self._pools = [self._pool, *(group.pool for group in self._windows)]

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Assert that these sequences use all blocks that are not free."""
        tables = [sequence.block_tables for sequence in sequences]
        for i, pool in enumerate(self._pools):
            pool.check(own[i].held() for own in tables)
        for own in tables:
            for group, table in zip(self._windows, own[1:], strict=True):
                assert len(table) - table.num_released <= group.blocks_per_seq

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


class Release:
    """The blocks that sequences would free together. It changes nothing. Core thread only.

    A block is freed if the added sequences hold all its references. It is valid until blocks are
    allocated or freed.
    """

    def __init__(self, pools: ReadOnly[BlockPool]) -> None:
        self._pools = pools
        self._held: list[Counter[int]] = [Counter() for _ in pools]
        self._freed: list[set[int]] = [set() for _ in pools]

    def add(self, sequence: Sequence) -> None:
        """The sequence gives up its blocks too."""
        groups = zip(self._pools, sequence.block_tables, self._held, self._freed, strict=True)
        for pool, table, held, freed in groups:
            for block_id in table.held():
                held[block_id] += 1
                if held[block_id] == pool.num_refs(block_id):
                    freed.add(block_id)

    def freed(self, group: int) -> set[int]:
        """The ids of the blocks that would be free in a group; the full group is the first."""
        return self._freed[group]
