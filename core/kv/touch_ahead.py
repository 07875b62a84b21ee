"""TouchAhead: takes memory for the KV cache from the system before a step needs it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

import torch

from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.system.memory_ahead import HUGE_PAGE

IDLE_TOKENS = 10_240
IDLE_BYTES = 1 << 30
"""While the engine is idle, memory for so many tokens is touched ahead, 64 streams of 160, but no
more than so many bytes. So a burst of requests computes in memory that the system has given."""

AHEAD_BYTES = 256 << 20
AHEAD_PAGES = 2
"""Beside work, so many bytes are touched ahead, or so many huge pages of each tensor if that is
less: a small model stays small. An idle engine touches no less."""

BUSY_PART = 1 / 2
"""After a step, a page is touched if less than this part of those bytes or pages is left ahead."""

PART_BESIDE_PROMPTS = 1 / 8
"""The same after a step with prompts: the streams beside them have waited for long already."""


class TouchAhead:
    """Writes to the huge pages of the blocks that are allocated next. On a CPU, core thread only.

    The first write to a huge page takes 0.1 ms, or 4 ms where the host of a virtual machine has to
    find memory for it. A block has an entry in two tensors per layer. When a long prompt has got
    its blocks, the next ones lie in other pages of all tensors, so a step would wait for 50 pages.
    """

    def __init__(
        self,
        storages: Sequence[KVStorage],
        kv: KVCacheManager,
        *,
        num_bytes: int | None = None,
        idle_tokens: int = IDLE_TOKENS,
    ) -> None:
        """``storages`` are those of the manager's groups; ``num_bytes`` counts all of them.

        It is AHEAD_BYTES or AHEAD_PAGES if not given.
        """
        self._kv = kv
        self._groups = [_Pages(storage.tensors) for storage in storages]
        if num_bytes is None:
            num_tensors = sum(len(storage.tensors) for storage in storages)
            num_bytes = min(AHEAD_BYTES, AHEAD_PAGES * HUGE_PAGE * num_tensors)
        block_nbytes = sum(group.block_nbytes for group in self._groups)
        self._num_blocks = num_bytes // max(block_nbytes, 1)
        idle_bytes = idle_tokens // kv.block_size * block_nbytes
        idle_bytes = max(num_bytes, min(IDLE_BYTES, idle_bytes))
        self._num_idle_blocks = idle_bytes // max(block_nbytes, 1)

    def advance(self, *, is_idle: bool, had_prompts: bool) -> bool:
        """Touch a page, unless enough are. Returns whether there was one to touch."""
        part = PART_BESIDE_PROMPTS if had_prompts else BUSY_PART
        num_blocks = self._num_idle_blocks if is_idle else int(part * self._num_blocks)
        for group, num_used in zip(self._groups, self._kv.num_blocks_ever_used, strict=True):
            if group.touch(num_used, num_used + num_blocks):
                return True
        return False


class _Pages:
    """The huge pages of one group that were not touched yet."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._bytes = [tensor.view(torch.uint8).view(-1) for tensor in tensors]
        self._sizes = [tensor[0].nbytes for tensor in tensors]
        self.block_nbytes = sum(self._sizes)
        # (block that the page begins in, tensor, offset of the page); the first page is in use
        self._next = [
            self._entry(index, -tensor.data_ptr() % HUGE_PAGE)
            for index, tensor in enumerate(tensors)
            if len(tensor)
        ]
        heapify(self._next)

    def _entry(self, index: int, offset: int) -> tuple[int, int, int]:
        return offset // self._sizes[index], index, offset

    def touch(self, first: int, end: int) -> bool:
        """Touch the first page that begins in one of these blocks, if there is one left."""
        pages = self._next
        while pages and pages[0][0] < end:
            block, index, offset = pages[0]
            data = self._bytes[index]
            heapreplace(pages, self._entry(index, offset + HUGE_PAGE))
            if block >= first and offset < len(data):
                data[offset : offset + 1].add_(0)  # a write that changes nothing
                return True
        return False
