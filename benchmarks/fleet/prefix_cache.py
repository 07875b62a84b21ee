"""PrefixCache: which blocks of conversations a replica holds.

It behaves as ``core.kv`` does, without its blocks: a conversation's blocks are a chain, whose later
blocks are worth nothing without the earlier ones. The blocks of a request are freed together, the
last first, and those of the shared beginning after its own. So the least recently freed block is
always the last one of the least recently freed chain, and counts of blocks are all that is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from benchmarks.fleet.request import Request


class _Chain:
    __slots__ = ("num_cached", "num_held", "num_users")

    def __init__(self) -> None:
        self.num_cached = 0
        self.num_users = 0
        self.num_held = 0


class PrefixCache:
    """A request holds the blocks of all its tokens, those it will sample included, to its end."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_used = 0
        """Blocks that requests hold. The rest holds cached blocks, as many as there are."""
        self._num_idle = 0
        self._chains: dict[Hashable, _Chain] = {}
        self._idle: OrderedDict[Hashable, _Chain] = OrderedDict()

    @property
    def num_idle(self) -> int:
        """Cached blocks that no request holds."""
        return self._num_idle

    def fits(self, request: Request) -> bool:
        """Whether there are enough blocks that no request holds."""
        num_shared = self._num_shared(request)
        num_new = self._num_blocks(request) - num_shared
        chain = self._chains.get(request.conversation.kind)
        if chain is None or not chain.num_users:
            num_new += num_shared
        return self.num_used + num_new <= self.num_blocks

    def start(self, request: Request) -> None:
        """Hold the blocks of a request and count what is cached of its prompt."""
        num_shared = self._num_shared(request)
        chain = self._hold(request.conversation.kind, num_shared)
        own = self._hold(request.conversation, self._num_blocks(request) - num_shared)
        self._evict()
        num_cached = chain.num_cached
        if num_cached == num_shared:
            num_cached += own.num_cached
        self._reuse(request, num_cached)

    def reuse(self, request: Request) -> None:
        """Count shared blocks that other requests have computed meanwhile."""
        self._reuse(request, self._chains[request.conversation.kind].num_cached)

    def computed(self, request: Request, num_tokens: int) -> None:
        """A request computes its first ``num_tokens``: others may share them from now on."""
        shared = self._chains[request.conversation.kind]
        num_blocks = min(num_tokens // self.block_size, self._num_shared(request))
        shared.num_cached = max(shared.num_cached, num_blocks)

    def finish(self, request: Request) -> None:
        """Free the blocks of a request. They stay cached until their room is needed."""
        own = self._chains[request.conversation]
        own.num_cached = request.num_kept // self.block_size - self._num_shared(request)
        self._free(request.conversation)
        self._free(request.conversation.kind)

    def check(self) -> None:
        """Assert the invariants."""
        held = sum(chain.num_held for chain in self._chains.values() if chain.num_users)
        assert held == self.num_used
        assert sum(chain.num_cached for chain in self._idle.values()) == self._num_idle
        assert self.num_used + self._num_idle <= self.num_blocks
        assert all(not chain.num_users for chain in self._idle.values())

    def _num_shared(self, request: Request) -> int:
        return request.conversation.num_shared // self.block_size

    def _num_blocks(self, request: Request) -> int:
        return -(-request.num_kept // self.block_size)

    def _reuse(self, request: Request, num_blocks: int) -> None:
        """Not the last token: its logits are needed."""
        num_blocks = min(num_blocks, (request.num_prompt - 1) // self.block_size)
        gained = num_blocks * self.block_size - request.num_computed
        if gained > 0:
            request.num_computed += gained
            request.num_cached += gained

    def _hold(self, key: Hashable, num_blocks: int) -> _Chain:
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = _Chain()
        if not chain.num_users:
            if self._idle.pop(key, None) is not None:
                self._num_idle -= chain.num_cached
            chain.num_held = num_blocks
            self.num_used += num_blocks
        chain.num_users += 1
        return chain

    def _free(self, key: Hashable) -> None:
        chain = self._chains[key]
        chain.num_users -= 1
        if chain.num_users:
            return
        self.num_used -= chain.num_held
        if chain.num_cached:
            self._idle[key] = chain
            self._num_idle += chain.num_cached
        else:
            del self._chains[key]

    def _evict(self) -> None:
        excess = self.num_used + self._num_idle - self.num_blocks
        while excess > 0:
            key, chain = next(iter(self._idle.items()))
            taken = min(excess, chain.num_cached)
            chain.num_cached -= taken
            self._num_idle -= taken
            excess -= taken
            if not chain.num_cached:
                del self._idle[key], self._chains[key]
