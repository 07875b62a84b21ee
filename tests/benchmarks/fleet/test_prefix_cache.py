"""The prefix cache of chains beside the engine's pool of blocks."""

from __future__ import annotations

import random

import pytest

from benchmarks.fleet.prefix_cache import PrefixCache
from benchmarks.fleet.request import Request
from benchmarks.fleet.scenario_load import Prompt
from core.kv.block_pool import BlockPool

SIZE = 4


def request_of(conversation, num_prompt, num_output=1):
    return Request(conversation, num_prompt, num_output, arrival=0.0)


def run(cache, request):
    cache.start(request)
    cache.computed(request, request.num_prompt)
    cache.finish(request)
    return request.num_cached


def test_the_next_turn_reuses_what_the_last_one_computed():
    cache = PrefixCache(100, SIZE)
    conversation = Prompt(0, 0, num_shared=10, kind=1)
    assert run(cache, request_of(conversation, 21, 6)) == 0
    # 26 tokens have keys and values: 6 full blocks
    assert run(cache, request_of(conversation, 40)) == 24
    # another conversation of the kind has its first full blocks, 8 of 10 tokens
    assert run(cache, request_of(Prompt(0, 0, num_shared=10, kind=1), 21)) == 8
    assert run(cache, request_of(Prompt(0, 0, num_shared=10, kind=2), 21)) == 0
    cache.check()
    assert cache.num_used == 0


def test_the_last_token_of_a_prompt_is_always_computed():
    cache = PrefixCache(100, SIZE)
    conversation = Prompt(0, 0)
    run(cache, request_of(conversation, 16))
    assert run(cache, request_of(conversation, 16)) == 12


def test_the_least_recently_freed_conversation_loses_its_end_first():
    cache = PrefixCache(12, SIZE)
    old, new = Prompt(0, 0, kind=1), Prompt(0, 0, kind=2)
    run(cache, request_of(old, 24))
    run(cache, request_of(new, 16))
    assert cache.num_idle == 10
    third = request_of(Prompt(0, 0, kind=3), 24)
    run(cache, third)  # needs 6 blocks: 2 are empty, the old one gives 4
    assert run(cache, request_of(old, 24)) == 2 * SIZE


class Blocks:
    """The same with blocks: hashes are (chain, index)."""

    def __init__(self, num_blocks):
        self.pool = BlockPool(num_blocks)
        self.tables = {}

    def start(self, request):
        num_shared = request.conversation.num_shared // SIZE
        table, num_hits = [], 0
        num_blocks = -(-request.num_kept // SIZE)
        for i in range((request.num_prompt - 1) // SIZE):
            block = self.pool.acquire_cached(self._hash(request, i, num_shared))
            if block is None:
                break
            table.append(block)
            num_hits += 1
        table += [self.pool.allocate() for _ in range(num_blocks - num_hits)]
        self.tables[request] = table
        self._cache(request, request.num_prompt // SIZE, num_shared)
        return num_hits * SIZE

    def finish(self, request):
        num_shared = request.conversation.num_shared // SIZE
        self._cache(request, request.num_kept // SIZE, num_shared)
        self.pool.release(reversed(self.tables.pop(request)))

    def _cache(self, request, end, num_shared):
        for i, block in enumerate(self.tables[request][:end]):
            self.pool.cache(block, self._hash(request, i, num_shared))

    def _hash(self, request, i, num_shared):
        owner = request.conversation.kind if i < num_shared else id(request.conversation)
        return bytes(16) + f"{owner:012}{i:04}".encode()


def new_conversation(rng):
    kind = rng.randrange(3)
    return Prompt(0, 0, num_shared=(5, 16, 0)[kind], kind=kind)


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_the_engines_pool_of_blocks_finds(seed):
    """Prompts are computed at once; conversations grow to 80 tokens, then others take over."""
    rng = random.Random(seed)
    num_blocks = rng.randint(40, 120)
    cache, blocks = PrefixCache(num_blocks, SIZE), Blocks(num_blocks)
    idle = {c: c.num_shared for c in (new_conversation(rng) for _ in range(12))}
    running, num_whole, num_partial = [], 0, 0
    for _ in range(1000):
        if idle and rng.random() < 0.55:
            conversation = rng.choice(list(idle))
            before = idle[conversation]
            request = request_of(conversation, before + rng.randint(1, 9), rng.randint(1, 9))
            if cache.fits(request):
                del idle[conversation]
                cache.start(request)
                cache.computed(request, request.num_prompt)
                assert request.num_cached == blocks.start(request)
                running.append(request)
                num_whole += request.num_cached >= (before - 1) // SIZE * SIZE > 16
                num_partial += 16 < request.num_cached < (before - 1) // SIZE * SIZE
        elif running:
            request = running.pop(rng.randrange(len(running)))
            cache.finish(request)
            blocks.finish(request)
            length = request.num_prompt + request.num_output
            conversation = request.conversation if length < 80 else new_conversation(rng)
            idle[conversation] = length if length < 80 else conversation.num_shared
        cache.check()
        assert cache.num_used == num_blocks - blocks.pool.num_free
    assert num_whole > 50
    assert num_partial > 3
