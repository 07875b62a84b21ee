import random

import pytest

from core.kv.block_pool import MAX_EVICTED, BlockPool, block_hash, root_hash


def names(*letters):
    return [letter.encode() for letter in letters]


def allocate_and_cache(pool, *hashes):
    blocks = [pool.allocate() for _ in hashes]
    for block, hashed in zip(blocks, hashes, strict=True):
        pool.cache(block, hashed)
    return blocks


def test_a_new_pool_allocates_every_block_once():
    pool = BlockPool(3)
    assert pool.num_free == 3
    assert sorted(pool.allocate() for _ in range(3)) == [0, 1, 2]
    assert pool.num_free == 0


def test_a_shared_block_is_free_after_its_last_release():
    pool = BlockPool(2)
    [block] = allocate_and_cache(pool, b"a")
    assert pool.acquire_cached(b"a") == block
    pool.release([block])
    assert pool.num_free == 1
    pool.check([[block]])
    pool.release([block])
    assert pool.num_free == 2


def test_a_free_block_stays_cached_until_it_is_allocated():
    pool = BlockPool(1)
    [block] = allocate_and_cache(pool, b"a")
    pool.release([block])
    assert pool.acquire_cached(b"a") == block
    assert pool.num_free == 0
    pool.release([block])
    assert pool.allocate() == block
    assert pool.acquire_cached(b"a") is None


def test_an_unknown_hash_is_not_found():
    assert BlockPool(2).acquire_cached(b"?") is None


def test_a_cached_block_is_in_use_while_it_has_references():
    pool = BlockPool(2)
    [block] = allocate_and_cache(pool, b"a")
    assert pool.is_cached_in_use(b"a")
    assert not pool.is_cached_in_use(b"?")
    pool.release([block])
    assert not pool.is_cached_in_use(b"a")
    assert pool.acquire_cached(b"a") == block
    assert pool.is_cached_in_use(b"a")


def test_the_least_recently_freed_block_is_allocated_first():
    pool = BlockPool(3)
    blocks = allocate_and_cache(pool, *names("a", "b", "c"))
    pool.release([blocks[1]])
    pool.release([blocks[2]])
    pool.release([blocks[0]])
    assert [pool.allocate() for _ in range(3)] == [blocks[1], blocks[2], blocks[0]]


def test_reuse_makes_a_block_recently_used():
    pool = BlockPool(2)
    old, young = allocate_and_cache(pool, *names("a", "b"))
    pool.release([old])
    pool.release([young])
    pool.acquire_cached(b"a")
    pool.release([old])
    assert pool.allocate() == young


def test_uncached_blocks_are_allocated_before_cached_ones():
    pool = BlockPool(3)
    [cached] = allocate_and_cache(pool, b"a")
    plain = pool.allocate()
    pool.release([cached])
    pool.release([plain])
    assert pool.allocate() == plain
    pool.allocate()
    assert pool.allocate() == cached


def test_the_first_block_with_a_hash_stays_cached():
    pool = BlockPool(3)
    first, second = allocate_and_cache(pool, b"same", b"same")
    assert pool.acquire_cached(b"same") == first
    pool.release([second])
    assert pool.acquire_cached(b"same") == first
    pool.release([first] * 3)
    pool.check([])


def test_allocating_a_duplicate_keeps_the_cached_block():
    pool = BlockPool(2)
    first, second = allocate_and_cache(pool, b"same", b"same")
    pool.release([second])
    assert pool.allocate() == second
    assert pool.acquire_cached(b"same") == first


def test_a_cached_block_keeps_its_hash():
    pool = BlockPool(1)
    [block] = allocate_and_cache(pool, b"a")
    pool.cache(block, b"b")
    assert pool.acquire_cached(b"b") is None
    assert pool.acquire_cached(b"a") == block


def test_drop_cached_keeps_references():
    pool = BlockPool(3)
    used, free = allocate_and_cache(pool, *names("a", "b"))
    pool.release([free])
    pool.drop_cached([used, free])
    assert pool.acquire_cached(b"a") is None
    assert pool.acquire_cached(b"b") is None
    assert pool.num_free == 2
    pool.check([[used]])
    pool.cache(used, b"c")
    assert pool.acquire_cached(b"c") == used


def test_drop_cached_keeps_other_blocks_cached():
    pool = BlockPool(2)
    a, b = allocate_and_cache(pool, *names("a", "b"))
    pool.drop_cached([a])
    assert pool.acquire_cached(b"a") is None
    assert pool.acquire_cached(b"b") == b


def test_an_evicted_block_is_remembered():
    pool = BlockPool(1)
    [block] = allocate_and_cache(pool, b"a")
    assert not pool.was_evicted(b"a")
    pool.release([block])
    pool.allocate()
    assert pool.was_evicted(b"a")
    assert not pool.was_evicted(b"b")


def test_the_oldest_evictions_are_forgotten():
    pool = BlockPool(1)
    for number in range(MAX_EVICTED + 2):
        block = pool.allocate()
        pool.cache(block, str(number).encode())
        pool.release([block])
    assert not pool.was_evicted(b"0")
    assert pool.was_evicted(b"1")
    assert pool.was_evicted(str(MAX_EVICTED).encode())


def test_a_content_is_known_while_a_block_of_any_salt_has_it():
    one, other = (block_hash(root_hash(salt), [1, 2]) for salt in ("one", "other"))
    pool = BlockPool(3)
    first, second = allocate_and_cache(pool, one, other)
    assert pool.has_content(block_hash(root_hash("third"), [1, 2]))
    assert not pool.has_content(block_hash(root_hash("one"), [1, 3]))
    pool.drop_cached([first])
    assert pool.has_content(one)
    pool.drop_cached([second])
    assert not pool.has_content(one)


def test_check_finds_a_leak_and_a_double_release():
    pool = BlockPool(2)
    block = pool.allocate()
    with pytest.raises(AssertionError):
        pool.check([])
    pool.release([block])
    with pytest.raises(AssertionError):
        pool.release([block])


def test_random_operations_keep_the_invariants():
    rng = random.Random(1)
    pool = BlockPool(6)
    held = []
    for _ in range(3_000):
        action = rng.randrange(5)
        if action == 0 and pool.num_free:
            held.append(pool.allocate())
        elif action == 1 and held:
            pool.cache(rng.choice(held), bytes([rng.randrange(10)]))
        elif action == 2:
            found = pool.acquire_cached(bytes([rng.randrange(10)]))
            held += [] if found is None else [found]
        elif action == 3 and held:
            pool.release([held.pop(rng.randrange(len(held)))])
        elif action == 4 and rng.random() < 0.05:
            pool.drop_cached(range(6))
        pool.check([[block] for block in held])
        assert pool.num_free == 6 - len(set(held))
