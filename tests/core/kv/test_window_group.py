"""Window groups: what they hold, what they release, and which prefixes are still reused."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.messages import PrefixMiss
from core.kv.window_group import WindowSize, window_blocks_per_seq
from core.scheduler.demand import Demand
from tests.support.builders import make_kv, make_sequence
from tests.support.steps import Steps

SIZE = 4
WINDOW, CHUNK = 6, 8
PER_SEQ = window_blocks_per_seq(WINDOW, CHUNK, SIZE)


def windowed_kv(num_blocks=64, num_window_blocks=32, **fields):
    window = WindowSize(num_window_blocks, WINDOW, PER_SEQ)
    return make_kv(num_blocks, SIZE, windows=[window], **fields)


def compute(kv, sequence):
    """Compute all pending tokens in chunks, as scheduler and engine do."""
    kv.reuse_cached(sequence)
    while sequence.num_pending_tokens:
        assert kv.allocate(sequence)
        count = min(CHUNK, sequence.num_pending_tokens)
        kv.cache_blocks(sequence, sequence.num_computed_tokens + count)
        sequence.num_computed_tokens += count
    return sequence


def new(prompt, **fields):
    return make_sequence(prompt, num_groups=2, **fields)


@pytest.mark.parametrize(
    ("window", "chunk", "size"), [(6, 8, 4), (1, 1, 4), (5, 16, 16), (4, 3, 1)]
)
def test_the_blocks_of_a_sequence_are_what_a_chunk_sees_at_most(window, chunk, size):
    spans = [
        (start + chunk - 1) // size - max(start - window + 1, 0) // size + 1 for start in range(200)
    ]
    assert window_blocks_per_seq(window, chunk, size) == max(spans)


def test_a_long_context_holds_its_window_only():
    kv = windowed_kv()
    sequence = compute(kv, new(range(200)))
    full, window = sequence.block_tables
    assert len(full.held()) == len(full) == len(window) == 50
    assert len(window.held()) <= PER_SEQ == 4
    kv.check([sequence])
    assert kv.num_used_token_blocks == 50
    kv.free(sequence)
    assert kv.num_free_blocks == kv.num_blocks


def test_a_released_entry_repeats_the_first_held_block():
    table = compute(windowed_kv(), new(range(60))).block_tables[1]
    assert table.num_released > 0
    assert set(table.view()[: table.num_released].tolist()) == {table.held()[0]}


def test_a_prefix_is_reused_where_its_last_window_is_cached():
    kv = windowed_kv()
    compute(kv, new(range(40)))
    other = new([*range(40), 99])
    assert kv.reuse_cached(other) == 40
    full, window = other.block_tables
    assert len(full.held()) == 10
    assert len(window) == 10
    assert window.num_released == (40 - WINDOW + 1) // SIZE
    assert kv.allocate(other)


def test_a_prefix_ends_before_a_window_block_that_is_gone():
    kv = windowed_kv(num_window_blocks=8)
    kv.free(compute(kv, new(range(40))))
    taken = new(range(100, 132))  # evicts the least recently released window blocks
    compute(kv, taken)
    kv.check([taken])
    for length in range(4, 41, 4):
        other = new([*range(length), 99])
        reused = kv.reuse_cached(other)
        assert reused in (0, length)
        lowest = max(0, reused - WINDOW + 1) // SIZE
        assert other.block_tables[1].num_released == lowest
        kv.free(other)
    other = new([*range(4), 99])
    assert kv.reuse_cached(other) == 0
    assert kv.miss_of(other) == PrefixMiss("window", 0)  # the full group still has it


def test_a_shorter_hit_is_found_below_a_longer_one_without_its_window():
    kv = windowed_kv()
    sequence = compute(kv, new(range(40)))
    kv.free(sequence)
    group = kv._windows[0]
    group.pool.drop_cached([group.pool._index[sequence.block_hashes[8]]])
    assert kv.reuse_cached(new([*range(40), 99])) == 32
    group.pool.drop_cached([group.pool._index[sequence.block_hashes[7]]])
    assert kv.reuse_cached(new([*range(40), 99])) == 28


def test_uncomputed_blocks_move_behind_adopted_ones():
    kv = windowed_kv()
    slow = new([*range(40), 98])
    assert kv.allocate(slow)
    before = set(slow.block_tables[1].held())
    fast = compute(kv, new([*range(40), 99]))
    assert kv.reuse_cached(slow) == 40
    assert len(slow.block_tables[1]) == 11
    assert slow.block_tables[1].held()[-1] in before
    assert kv.allocate(slow)
    kv.check([fast, slow])


def test_blocks_of_all_groups_have_numbers():
    kv = windowed_kv()
    sequence = compute(kv, new(range(11)))
    full, window = (table.held() for table in sequence.block_tables)
    assert kv.blocks_of(sequence) == full + [64 + block_id for block_id in window]
    assert kv.blocks_between(sequence.block_tables, 5, 9) == full[1:3] + [
        64 + block_id for block_id in window[1:3]
    ]
    kv.drop_cached([64 + window[1]])
    assert kv.reuse_cached(new(range(11))) == 4


def test_a_group_with_a_released_block_is_suspected_as_a_whole():
    kv = windowed_kv()
    sequence = compute(kv, new(range(60)))
    numbers = kv.blocks_between(sequence.block_tables, 0, 60)
    assert numbers == [*sequence.block_table.held(), *range(64, 96)]


def test_has_room_asks_every_group():
    kv = windowed_kv(num_blocks=64, num_window_blocks=PER_SEQ + 1)
    assert kv.has_room(new(range(100)), num_spare_blocks=1, num_running=1)
    assert not kv.has_room(new(range(100)), num_spare_blocks=2, num_running=1)
    assert kv.has_room(new(range(12)), num_spare_blocks=2, num_running=1)


def test_has_room_counts_no_prefix_whose_window_is_gone():
    """Another sequence still has the prefix in the full group, but no longer its last window."""
    kv = windowed_kv(num_blocks=25, num_window_blocks=3 * PER_SEQ)
    others = [compute(kv, new(range(60))), compute(kv, new(range(100, 132)))]
    again = new([*range(36), 99])
    assert not kv.has_room(again, num_spare_blocks=0, num_running=2)
    assert kv.reuse_cached(again) == 0
    assert not kv.allocate(again)
    kv.check([*others, again])
    assert kv.has_room(new(range(8)), num_spare_blocks=0, num_running=2)


def test_has_room_asks_for_a_prefix_only_if_it_could_suffice(monkeypatch):
    """Admission asks for many waiting sequences in a step, and a prefix may be long."""
    kv = windowed_kv(num_blocks=25, num_window_blocks=3 * PER_SEQ)
    compute(kv, new(range(60)))
    asked = []
    monkeypatch.setattr(kv, "_longest_hit", lambda *args: asked.append(args) or 0)
    assert not kv.has_room(new(range(100, 160)), num_spare_blocks=0, num_running=1)
    assert not asked
    assert not kv.has_room(new(range(60)), num_spare_blocks=0, num_running=1)
    assert len(asked) == 1


def test_has_room_counts_what_each_group_would_free():
    """The full group would free ten blocks and the window's four."""
    kv = windowed_kv(num_blocks=20, num_window_blocks=2 * PER_SEQ)
    first, second = compute(kv, new(range(40))), compute(kv, new(range(100, 132)))
    release = kv.release()
    release.add(first)
    assert [len(release.freed(group)) for group in range(2)] == [
        10,
        len(first.block_tables[1].held()),
    ]
    other = new(range(200, 240))
    assert kv.has_room(other, num_spare_blocks=0, num_running=1, release=release)
    assert not kv.has_room(other, num_spare_blocks=5, num_running=2, release=release)
    kv.free(first)
    assert kv.allocate(other)
    kv.check([second, other])


def test_spare_blocks_of_a_window_group_are_no_more_than_its_sequences_can_get():
    kv = windowed_kv(num_blocks=200, num_window_blocks=2 * PER_SEQ)
    compute(kv, new(range(100)))
    assert kv.has_room(new(range(100, 200)), num_spare_blocks=50, num_running=1)
    assert not kv.has_room(new(range(100, 200)), num_spare_blocks=50, num_running=2)


def test_long_outputs_leave_window_groups_room_for_all_sequences():
    """Every sequence is expected to fill 25 blocks of the full group, and 4 of the window's."""
    window = WindowSize(4 * PER_SEQ, WINDOW, PER_SEQ)
    steps = Steps(
        num_blocks=128,
        windows=[window],
        demand=Demand(),
        max_num_seqs=4,
        max_num_batched_tokens=CHUNK,
    )
    for i in range(4):
        steps.add(range(100 * i, 100 * i + 4), str(i), max_tokens=96)
    steps.step()
    assert steps.scheduler.num_running == 4


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    prompts=st.lists(PROMPTS, min_size=1, max_size=8),
    windows=st.lists(st.integers(1, 14), min_size=1, max_size=2),
    size=st.sampled_from([1, 2, 4]),
    budget=st.integers(3, 20),
    pressure=st.floats(0, 1),
    caching=st.booleans(),
    seed=st.integers(0, 100),
)
def test_random_traffic_reads_what_it_wrote(
    prompts, windows, size, budget, pressure, caching, seed
):
    """The cache model checks every slot that a query of each group sees, in every step."""
    rng = random.Random(seed)
    longest = -(-48 // size)
    groups = []
    for window in windows:
        per_seq = min(window_blocks_per_seq(window, budget, size), longest)
        groups.append(WindowSize(per_seq + round(pressure * 3 * per_seq), window, per_seq))
    steps = Steps(
        num_blocks=longest + round(pressure * 3 * longest),
        block_size=size,
        windows=groups,
        enable_prefix_caching=caching,
        max_num_seqs=3,
        max_num_batched_tokens=budget,
        prefill_chunk_size=rng.choice([None, 2, budget]),
    )
    waiting = [
        steps.add(prompt, str(i), max_tokens=rng.randrange(1, 9))
        for i, prompt in enumerate(prompts)
    ]
    for _ in range(2_000):
        if not (steps.scheduler.num_running or steps.scheduler.num_waiting):
            break
        if rng.random() < 0.03:
            steps.scheduler.finish(rng.choice([*steps.scheduler]))
            continue
        steps.step()
    assert not steps.scheduler.num_running
    assert not steps.scheduler.num_waiting
    assert waiting
    assert steps.kv.num_free_blocks == steps.kv.num_blocks
