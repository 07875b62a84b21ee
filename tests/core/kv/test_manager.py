import random

import pytest

from core.kv.window_group import WindowSize
from tests.support.builders import blocks_of, make_kv, make_sequence


def compute(kv, sequence, num_tokens=None):
    """Allocate, cache and compute pending tokens of a sequence, as scheduler and engine do."""
    assert kv.allocate(sequence)
    num_tokens = sequence.num_pending_tokens if num_tokens is None else num_tokens
    kv.cache_blocks(sequence, sequence.num_computed_tokens + num_tokens)
    sequence.num_computed_tokens += num_tokens


def computed(kv, prompt, **fields):
    sequence = make_sequence(prompt, **fields)
    kv.reuse_cached(sequence)
    compute(kv, sequence)
    return sequence


def test_allocate_provides_exactly_the_blocks_of_all_tokens():
    kv = make_kv(num_blocks=4, block_size=4)
    sequence = make_sequence(range(5))
    assert kv.allocate(sequence)
    assert len(blocks_of(sequence)) == 2
    sequence.token_ids += [1, 2, 3]
    assert kv.allocate(sequence)
    assert len(blocks_of(sequence)) == 2
    sequence.token_ids.append(4)
    assert kv.allocate(sequence)
    assert len(blocks_of(sequence)) == 3
    kv.check([sequence])


def test_a_failed_allocation_changes_nothing():
    kv = make_kv(num_blocks=2, block_size=4)
    sequence = make_sequence(range(9))
    assert not kv.allocate(sequence)
    assert blocks_of(sequence) == []
    assert kv.num_free_blocks == 2
    kv.check([])


def test_an_equal_prefix_is_reused_block_by_block():
    kv = make_kv()
    first = computed(kv, range(10))
    second = make_sequence([*range(8), 50, 51])
    assert kv.reuse_cached(second) == 8
    assert second.num_computed_tokens == 8
    assert blocks_of(second) == blocks_of(first)[:2]
    kv.check([first, second])


def test_only_full_blocks_are_shared():
    kv = make_kv()
    computed(kv, range(7))
    assert kv.reuse_cached(make_sequence(range(20))) == 4


def test_a_partial_block_has_one_owner():
    kv = make_kv()
    first, second = computed(kv, range(10)), computed(kv, range(10))
    assert blocks_of(first)[:2] == blocks_of(second)[:2]
    assert blocks_of(first)[2] != blocks_of(second)[2]


@pytest.mark.parametrize(("num_tokens", "num_reused"), [(4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_the_last_token_is_never_reused(num_tokens, num_reused):
    kv = make_kv()
    computed(kv, range(num_tokens))
    assert kv.reuse_cached(make_sequence(range(num_tokens))) == num_reused


def test_a_prefix_ends_where_tokens_differ():
    kv = make_kv()
    computed(kv, range(12))
    assert kv.reuse_cached(make_sequence([0, 1, 2, 3, 99, 5, 6, 7, 8])) == 4
    assert kv.reuse_cached(make_sequence([99, 1, 2, 3, 4, 5, 6, 7, 8])) == 0


def test_a_block_is_reused_only_after_its_own_prefix():
    kv = make_kv()
    computed(kv, [1, 1, 1, 1, 2, 2, 2, 2, 3])
    assert kv.reuse_cached(make_sequence([2, 2, 2, 2, 3])) == 0


def test_different_salts_share_nothing():
    kv = make_kv(num_blocks=20)
    computed(kv, range(10), cache_salt="alice")
    assert kv.reuse_cached(make_sequence(range(10), cache_salt="bob")) == 0
    assert kv.reuse_cached(make_sequence(range(10))) == 0
    assert kv.reuse_cached(make_sequence(range(10), cache_salt="alice")) == 8


def test_without_prefix_caching_nothing_is_shared():
    kv = make_kv(enable_prefix_caching=False)
    computed(kv, range(10))
    assert kv.reuse_cached(make_sequence(range(10))) == 0


def test_prompt_logprobs_reuse_nothing_but_fill_the_prefix_cache():
    kv = make_kv()
    computed(kv, range(10), prompt_logprobs=0)
    assert kv.reuse_cached(make_sequence(range(10), prompt_logprobs=0)) == 0
    assert kv.reuse_cached(make_sequence(range(10))) == 8


def test_generated_tokens_are_shared_like_prompt_tokens():
    kv = make_kv()
    sequence = computed(kv, range(6))
    sequence.token_ids += [60, 70, 80]
    compute(kv, sequence)
    assert kv.reuse_cached(make_sequence([0, 1, 2, 3, 4, 5, 60, 70, 99])) == 8


def test_a_block_cached_in_a_step_is_shared_in_the_same_step():
    kv = make_kv()
    first, second = make_sequence(range(9)), make_sequence(range(9))
    assert kv.allocate(first)
    kv.cache_blocks(first, 9)  # scheduled; nothing is computed yet
    assert first.num_computed_tokens == 0
    assert kv.reuse_cached(second) == 8
    assert kv.allocate(second)
    kv.check([first, second])


def test_only_blocks_that_the_step_fills_are_cached():
    kv = make_kv()
    first = make_sequence(range(12))
    assert kv.allocate(first)
    kv.cache_blocks(first, 7)
    assert kv.reuse_cached(make_sequence(range(12))) == 4


def test_a_cached_block_replaces_an_own_uncomputed_block():
    kv = make_kv(num_blocks=12)
    slow, fast = make_sequence(range(13)), make_sequence(range(13))
    assert kv.allocate(slow)
    assert kv.allocate(fast)
    num_free = kv.num_free_blocks
    compute(kv, slow, 4)
    compute(kv, fast, 9)
    assert blocks_of(slow)[0] != blocks_of(fast)[0]  # both had computed it
    assert kv.reuse_cached(slow) == 4
    assert slow.num_computed_tokens == 8
    assert blocks_of(slow)[1] == blocks_of(fast)[1]
    assert len(blocks_of(slow)) == 4
    assert kv.num_free_blocks == num_free + 1
    kv.check([slow, fast])


def test_nothing_is_reused_inside_a_block():
    kv = make_kv(num_blocks=12)
    slow, fast = make_sequence(range(13)), make_sequence(range(13))
    assert kv.allocate(slow)
    assert kv.allocate(fast)
    compute(kv, slow, 6)
    compute(kv, fast)
    before = blocks_of(slow)
    assert kv.reuse_cached(slow) == 0
    assert blocks_of(slow) == before


def test_free_releases_all_blocks_and_keeps_them_cached():
    kv = make_kv()
    sequence = computed(kv, range(10))
    kv.free(sequence)
    assert kv.num_free_blocks == kv.num_blocks
    assert sequence.num_computed_tokens == 0
    assert kv.reuse_cached(sequence) == 8
    kv.check([sequence])


def test_freeing_a_sequence_keeps_the_blocks_it_shares():
    kv = make_kv()
    first, second = computed(kv, range(10)), computed(kv, range(10))
    kv.free(first)
    kv.check([second])
    assert kv.num_free_blocks == kv.num_blocks - 3


def test_the_end_of_a_prefix_is_evicted_before_its_beginning():
    kv = make_kv(num_blocks=4)
    kv.free(computed(kv, range(16)))
    other = make_sequence([70])
    assert kv.allocate(other)
    assert kv.reuse_cached(make_sequence(range(17))) == 12


def test_the_least_recently_used_prefix_is_evicted_first():
    kv = make_kv(num_blocks=4)
    one, two = computed(kv, range(8)), computed(kv, range(100, 108))
    kv.free(two)
    kv.free(one)
    assert kv.allocate(make_sequence(range(200, 208)))
    assert kv.reuse_cached(make_sequence(range(100, 109))) == 0
    assert kv.reuse_cached(make_sequence(range(9))) == 8


def test_a_failed_admission_releases_reused_blocks():
    kv = make_kv(num_blocks=4)
    kv.free(computed(kv, range(8)))
    sequence = make_sequence(range(100))
    assert kv.reuse_cached(sequence) == 8
    assert not kv.allocate(sequence)
    kv.free(sequence)
    assert kv.num_free_blocks == 4
    kv.check([])


def test_dropped_blocks_leave_the_prefix_cache_and_keep_their_owners():
    kv = make_kv()
    first, second = computed(kv, range(10)), computed(kv, range(50, 59))
    kv.drop_cached(kv.blocks_between(first.block_tables, 4, 10))
    assert kv.reuse_cached(make_sequence(range(10))) == 4
    assert kv.reuse_cached(make_sequence(range(50, 59))) == 8
    kv.free(second)


def test_a_freed_table_still_says_which_blocks_it_had():
    kv = make_kv()
    sequence = computed(kv, range(10))
    tables, held = sequence.block_tables, sequence.block_table.view().tolist()
    kv.free(sequence)
    assert len(sequence.block_table) == 0
    assert kv.blocks_between(tables, 0, 10) == held
    assert kv.blocks_between(tables, 5, 8) == held[1:2]


def test_has_room_counts_free_blocks():
    kv = make_kv(num_blocks=4, block_size=4)
    assert kv.has_room(make_sequence(range(16)), num_spare_blocks=0)
    assert not kv.has_room(make_sequence(range(17)), num_spare_blocks=0)
    assert kv.has_room(make_sequence(range(12)), num_spare_blocks=1)
    assert not kv.has_room(make_sequence(range(13)), num_spare_blocks=1)


def test_has_room_counts_cached_free_blocks_as_needed():
    kv = make_kv(num_blocks=4, block_size=4)
    kv.free(computed(kv, range(12)))
    assert kv.has_room(make_sequence(range(16)), num_spare_blocks=0)
    assert not kv.has_room(make_sequence(range(17)), num_spare_blocks=0)


def test_has_room_does_not_count_cached_blocks_in_use():
    kv = make_kv(num_blocks=5, block_size=4)
    computed(kv, range(13))
    for num_tokens, num_spare_blocks, has_room in [(13, 0, True), (16, 0, True), (13, 1, False)]:
        sequence = make_sequence(range(num_tokens))
        assert kv.has_room(sequence, num_spare_blocks=num_spare_blocks) == has_room
    assert not kv.has_room(make_sequence(range(17)), num_spare_blocks=0)  # block 4 is not full
    assert kv.has_room(make_sequence(range(12)), num_spare_blocks=0)
    assert not kv.has_room(make_sequence(range(12)), num_spare_blocks=1)  # it computes block 3
    assert not kv.has_room(make_sequence(range(13), prompt_logprobs=0), num_spare_blocks=0)
    assert not kv.has_room(make_sequence(range(13), cache_salt="bob"), num_spare_blocks=0)


def test_has_room_counts_what_others_would_give_up_once():
    kv = make_kv(num_blocks=6, block_size=4)
    others = [computed(kv, range(13)), computed(kv, range(13))]
    assert kv.num_free_blocks == 1  # they share three blocks
    fits = {20: [False, True, True], 14: [True, True, True], 21: [False, False, True]}
    for num_tokens, expected in fits.items():
        for start, answers in ((0, expected), (100, [False, False, True])):
            sequence = make_sequence(range(start, start + num_tokens))
            release = kv.release()
            found = [kv.has_room(sequence, num_spare_blocks=0, release=release)]
            for other in others:
                release.add(other)
                found.append(kv.has_room(sequence, num_spare_blocks=0, release=release))
            assert found == answers, (num_tokens, start)
    kv.check(others)


@pytest.mark.parametrize("windows", [[], [WindowSize(30, 3, 6)], [WindowSize(14, 3, 4)]])
def test_has_room_implies_admission_and_changes_nothing(windows):
    """Also after others have given up their blocks, and where windows shorten a cached prefix."""
    rng = random.Random(0)
    answers, num_missed = [], 0
    for _ in range(300):
        kv = make_kv(12, 2, enable_prefix_caching=rng.random() < 0.8, windows=windows)
        others, victims, release = [], [], kv.release()
        for _ in range(rng.randrange(5)):
            other = drawn(kv, rng, 9)
            kv.reuse_cached(other)
            if kv.allocate(other):
                compute_in_chunks(kv, other)
            others.append(other)
        for other in others[rng.randrange(5) :]:
            kv.free(other)
            others.remove(other)
        for other in others[rng.randrange(5) :]:
            victims.append(other)
            release.add(other)
        sequence = drawn(kv, rng, 21)
        num_free, num_spare_blocks = kv.num_free_blocks, rng.randrange(4)
        answers.append(
            kv.has_room(
                sequence,
                num_spare_blocks=num_spare_blocks,
                num_running=len(others) - len(victims),
                release=release,
            )
        )
        assert kv.num_free_blocks == num_free
        kv.check(others)
        for other in victims:
            kv.free(other)
            others.remove(other)
        kv.reuse_cached(sequence)
        allocated = kv.allocate(sequence)
        kv.check([*others, sequence])
        if answers[-1]:
            assert allocated
            assert kv.num_used_token_blocks + num_spare_blocks <= 12
        elif not windows and allocated and kv.num_free_blocks >= num_spare_blocks:
            num_missed += 1  # blocks in use after a block that is not
    assert 50 < sum(answers) < 250
    assert num_missed <= 3


def drawn(kv, rng, length):
    """A sequence with a prompt of up to so many tokens of two kinds."""
    prompt = [rng.randrange(2) for _ in range(rng.randrange(1, length))]
    return make_sequence(prompt, num_groups=kv.num_groups)


def compute_in_chunks(kv, sequence):
    """Compute pending tokens two at a time, so that windows release what lies before."""
    while sequence.num_pending_tokens and kv.allocate(sequence):
        num_tokens = min(2, sequence.num_pending_tokens)
        kv.cache_blocks(sequence, sequence.num_computed_tokens + num_tokens)
        sequence.num_computed_tokens += num_tokens


# Why a prompt was not found


def miss_of(kv, prompt, **fields):
    sequence = make_sequence(prompt, **fields)
    kv.reuse_cached(sequence)
    miss = kv.miss_of(sequence)
    kv.free(sequence)
    return miss.reason, miss.block


def test_a_prompt_that_differs_is_never_seen_from_its_first_other_block():
    kv = make_kv()
    computed(kv, range(12))
    assert miss_of(kv, [9] * 12) == ("never_seen", 0)
    assert miss_of(kv, [*range(7), 9, *range(8, 12)]) == ("never_seen", 1)


@pytest.mark.parametrize(("length", "block"), [(3, 0), (8, 1), (9, 2), (11, 2)])
def test_of_an_equal_prompt_only_the_last_block_is_missing(length, block):
    kv = make_kv()
    computed(kv, range(length))
    assert miss_of(kv, range(length)) == ("last_block", block)


def test_a_block_that_gave_way_is_evicted():
    kv = make_kv(num_blocks=3)
    kv.free(computed(kv, range(12)))
    kv.free(computed(kv, [7] * 8))  # the last blocks of the first go first
    assert miss_of(kv, range(12)) == ("evicted", 1)


def test_another_salt_hides_a_block():
    kv = make_kv()
    computed(kv, range(12), cache_salt="one")
    computed(kv, range(4), cache_salt="other")
    assert miss_of(kv, range(12), cache_salt="third") == ("other_salt", 0)
    assert miss_of(kv, range(12), cache_salt="other") == ("other_salt", 1)
    assert miss_of(kv, range(12), cache_salt="one") == ("last_block", 2)


def test_what_needs_the_whole_prompt_reuses_nothing():
    kv = make_kv()
    computed(kv, range(12))
    assert miss_of(kv, range(12), prompt_logprobs=0) == ("prompt_logprobs", 0)
    assert miss_of(make_kv(enable_prefix_caching=False), range(12)) == ("disabled", 0)
