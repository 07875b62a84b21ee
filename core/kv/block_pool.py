"""BlockPool: the free list, the reference counts and the prefix cache index of all blocks."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

MAX_EVICTED = 2**14
"""Hashes of evicted blocks that are remembered."""


class BlockPool:
    """Counts references to ``num_blocks`` blocks and finds cached blocks by content hash.

    A block without references is free. A free block keeps its content and its hash until it is
    allocated again, least recently freed first. What the last evicted blocks were is remembered.
    Core thread only.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_ever_used = 0
        """Blocks that were allocated at some time: the first ones."""
        self._num_refs = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._index: dict[bytes, int] = {}
        self._contents: dict[bytes, int] = {}  # how many cached blocks have it, by any salt
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Number of blocks without references, cached ones included."""
        return len(self._free)

    def num_refs(self, block_id: int) -> int:
        """Number of sequences that hold the block."""
        return self._num_refs[block_id]

    def is_cached(self, block_hash: bytes) -> bool:
        """Whether a block with this content is cached."""
        return block_hash in self._index

    def was_evicted(self, block_hash: bytes) -> bool:
        """Whether a block with this content was cached, and gave way not too long ago."""
        return block_hash in self._evicted

    def has_content(self, block_hash: bytes) -> bool:
        """Whether a block with this content is cached for any salt."""
        return content_of(block_hash) in self._contents

    def is_cached_in_use(self, block_hash: bytes, freed: AbstractSet[int] = frozenset()) -> bool:
        """Whether a block with this content is cached, not free, and none of ``freed``."""
        block_id = self._index.get(block_hash)
        return block_id is not None and self._num_refs[block_id] > 0 and block_id not in freed

    def allocate(self) -> int:
        """Take the least recently freed block and drop its content."""
        block_id, _ = self._free.popitem(last=False)
        self._drop_cached(block_id)
        self._num_refs[block_id] = 1
        self.num_ever_used = max(self.num_ever_used, block_id + 1)
        return block_id

    def acquire_cached(self, block_hash: bytes) -> int | None:
        """Add a reference to the cached block with this content, if there is one."""
        block_id = self._index.get(block_hash)
        if block_id is None:
            return None
        if self._num_refs[block_id] == 0:
            del self._free[block_id]
        self._num_refs[block_id] += 1
        return block_id

    def cache(self, block_id: int, block_hash: bytes) -> None:
        """Cache a block in use, unless another block with this content is cached already."""
        assert self._num_refs[block_id] > 0
        if self._hashes[block_id] is None and block_hash not in self._index:
            self._hashes[block_id] = block_hash
            self._index[block_hash] = block_id
            content = content_of(block_hash)
            self._contents[content] = self._contents.get(content, 0) + 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Remove one reference to each block. Blocks released first are allocated first."""
        for block_id in block_ids:
            assert self._num_refs[block_id] > 0
            self._num_refs[block_id] -= 1
            if self._num_refs[block_id] == 0:
                self._free[block_id] = None
                if self._hashes[block_id] is None:
                    self._free.move_to_end(block_id, last=False)

    def drop_cached(self, block_ids: Iterable[int]) -> None:
        """Drop these blocks from the index; references stay."""
        for block_id in block_ids:
            self._drop_cached(block_id)

    def _drop_cached(self, block_id: int) -> None:
        block_hash = self._hashes[block_id]
        if block_hash is not None:
            del self._index[block_hash]
            self._hashes[block_id] = None
            self._forget(block_hash)

    def _forget(self, block_hash: bytes) -> None:
        content = content_of(block_hash)
        if self._contents[content] == 1:
            del self._contents[content]
        else:
            self._contents[content] -= 1
        self._evicted[block_hash] = None
        self._evicted.move_to_end(block_hash)
        if len(self._evicted) > MAX_EVICTED:
            self._evicted.popitem(last=False)

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Assert that these block tables hold all references."""
        expected = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                expected[block_id] += 1
        assert expected == self._num_refs
        assert {b for b, refs in enumerate(expected) if refs == 0} == set(self._free)
        assert self._index == {h: b for b, h in enumerate(self._hashes) if h is not None}
        assert self._contents == Counter(map(content_of, self._index))
        assert len(self._evicted) <= MAX_EVICTED


DIGEST_SIZE = 16
"""Bytes. A hash is a digest of the salt, then one of the content. It is cryptographic: a collision
would expose one client's context to another."""


def root_hash(cache_salt: str) -> bytes:
    """Parent of the first block of a sequence. Sequences share blocks only if salts are equal."""
    salt = hashlib.blake2b(cache_salt.encode(), digest_size=DIGEST_SIZE).digest()
    return salt + bytes(DIGEST_SIZE)


def block_hash(parent: bytes, token_ids: Iterable[int]) -> bytes:
    """Hash of a full block: of its tokens and, through ``parent``, of all tokens before them."""
    tokens = array("i", token_ids).tobytes()
    digest = hashlib.blake2b(tokens, digest_size=DIGEST_SIZE, key=parent[DIGEST_SIZE:]).digest()
    return parent[:DIGEST_SIZE] + digest


def content_of(hashed: bytes) -> bytes:
    """The part of a block's hash that does not depend on the salt."""
    return hashed[DIGEST_SIZE:]
