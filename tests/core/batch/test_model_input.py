import itertools
import random

import numpy as np
import pytest
import torch

from core.batch.model_input import ModelInput, ModelInputs, build_model_input
from tests.support.builders import make_sequence


def sequence_with(tokens, num_computed, blocks):
    sequence = make_sequence(tokens)
    sequence.num_computed_tokens = num_computed
    for block_id in blocks:
        sequence.block_table.append(block_id)
    return sequence


def build(scheduled, logits_indices=(), *, block_size=4):
    return build_model_input(scheduled, list(logits_indices), block_size=block_size)


def naive(scheduled, block_size):
    """Token, position and slot of each scheduled token."""
    rows = []
    for sequence, count in scheduled:
        for position in range(sequence.num_computed_tokens, sequence.num_computed_tokens + count):
            block_id = int(sequence.block_table.view()[position // block_size])
            slot = block_id * block_size + position % block_size
            rows.append((sequence.token_ids[position], position, slot))
    return rows


def random_step(rng, block_size):
    free = list(range(400))
    rng.shuffle(free)
    scheduled = []
    for _ in range(rng.randrange(1, 9)):
        num_tokens = rng.randrange(1, 40)
        num_computed = rng.randrange(num_tokens)
        num_blocks = -(-num_tokens // block_size) + rng.randrange(2)
        tokens = [rng.randrange(1_000) for _ in range(num_tokens)]
        sequence = sequence_with(tokens, num_computed, [free.pop() for _ in range(num_blocks)])
        scheduled.append((sequence, rng.randrange(1, num_tokens - num_computed + 1)))
    return scheduled


def test_a_prefill_and_a_decode():
    prompt = sequence_with([10, 11, 12, 13, 14], 0, [7, 2])
    stream = sequence_with([20, 21, 22], 2, [5])
    batch = build([(stream, 1), (prompt, 5)], [0, 5])
    assert batch.token_ids.tolist() == [22, 10, 11, 12, 13, 14]
    assert batch.positions.tolist() == [2, 0, 1, 2, 3, 4]
    assert batch.slots.tolist() == [22, 28, 29, 30, 31, 8]
    assert batch.logits_indices.tolist() == [0, 5]
    assert batch.query_starts.tolist() == [0, 1, 6]
    assert batch.context_lens.tolist() == [3, 5]
    assert batch.block_tables.tolist() == [[5, 0], [7, 2]]
    assert batch.num_seqs == 2


def test_the_context_of_a_chunk_ends_with_the_chunk():
    sequence = sequence_with(range(100, 112), 3, [9, 8, 7])
    batch = build([(sequence, 3)])
    assert batch.token_ids.tolist() == [103, 104, 105]
    assert batch.positions.tolist() == [3, 4, 5]
    assert batch.slots.tolist() == [39, 32, 33]
    assert batch.context_lens.tolist() == [6]
    assert batch.block_tables.tolist() == [[9, 8]]


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_random_steps_agree_with_the_naive_reference(block_size):
    rng = random.Random(block_size)
    for _ in range(60):
        scheduled = random_step(rng, block_size)
        expected = naive(scheduled, block_size)
        num_tokens = len(expected)
        logits_indices = sorted(rng.sample(range(num_tokens), rng.randrange(num_tokens + 1)))
        batch = build(scheduled, logits_indices, block_size=block_size)
        found = zip(
            batch.token_ids.tolist(), batch.positions.tolist(), batch.slots.tolist(), strict=True
        )
        assert list(found) == expected
        assert batch.logits_indices.tolist() == logits_indices
        assert np.diff(batch.query_starts).tolist() == [count for _, count in scheduled]
        for i, (sequence, count) in enumerate(scheduled):
            context = sequence.num_computed_tokens + count
            assert batch.context_lens[i] == context
            num_blocks = -(-context // block_size)
            table = sequence.block_table.view()[:num_blocks].tolist()
            assert batch.block_tables[i, :num_blocks].tolist() == table
        for tensor in (batch.token_ids, batch.positions, batch.slots, batch.logits_indices):
            assert tensor.dtype == torch.int64


def test_build_model_input_changes_no_sequence():
    sequence = sequence_with([1, 2, 3], 1, [4])
    build([(sequence, 2)], [1])
    assert sequence.token_ids == [1, 2, 3]
    assert sequence.num_computed_tokens == 1
    assert sequence.block_table.view().tolist() == [4]


def test_no_two_tokens_share_a_slot():
    rng = random.Random(0)
    for _ in range(50):
        batch = build(random_step(rng, 4))
        assert len(set(batch.slots.tolist())) == len(batch.slots)


def test_each_window_group_has_its_tables_and_slots():
    sequence = make_sequence(range(100, 111), num_groups=2)
    sequence.num_computed_tokens = 8
    full, window = sequence.block_tables
    for block_id in (7, 2, 5):
        full.append(block_id)
    for block_id in (1, 3, 4):
        window.append(block_id)
    window.release(1)
    batch = build([(sequence, 3)])
    assert batch.block_tables.tolist() == [[7, 2, 5]]
    assert batch.slots.tolist() == [20, 21, 22]
    assert batch.of_group(0) is batch
    group = batch.of_group(1)
    assert group.block_tables.tolist() == [[3, 3, 4]]
    assert group.slots.tolist() == [16, 17, 18]
    assert group.positions is batch.positions


def decoding(rng, inputs, sequences, block_size):
    """The input of a step of one token for each sequence, with its ``layout``; moves them on."""
    for sequence in sequences:
        if sequence.num_computed_tokens % block_size == 0:
            sequence.block_table.append(rng.randrange(1_000))
    scheduled = [(sequence, 1) for sequence in sequences]
    rows = list(range(len(sequences)))
    batch = inputs.of(scheduled, rows, wants_best=True)
    assert_equal(batch, build_model_input(scheduled, rows, block_size=block_size))
    for sequence in sequences:
        sequence.num_computed_tokens += 1
        sequence.token_ids.append(rng.randrange(1_000))
    return batch.layout


def assert_equal(actual: ModelInput, expected: ModelInput) -> None:
    for name in ("token_ids", "positions", "slots", "logits_indices"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    for name in ("query_starts", "context_lens", "block_tables"):
        assert getattr(actual, name).tolist() == getattr(expected, name).tolist(), name


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("lengths", [[4], [3, 17, 8, 31]])
def test_decode_steps_in_place_equal_new_ones(lengths, block_size):
    rng, inputs = random.Random(0), ModelInputs(block_size)
    sequences = [
        sequence_with(range(length), length - 1, range(-(-(length - 1) // block_size)))
        for length in lengths
    ]
    layouts = [decoding(rng, inputs, sequences, block_size) for _ in range(40)]
    for step, (before, after) in enumerate(itertools.pairwise(layouts), 1):
        enters = any((length - 1 + step) % block_size == 0 for length in lengths)
        assert (before is not after) == enters, step


def test_a_step_of_other_sequences_or_tokens_begins_anew():
    rng, inputs, size = random.Random(0), ModelInputs(4), 4
    one, two, three = (sequence_with(range(10, 13), 2, [block]) for block in (1, 2, 3))
    layouts = [decoding(rng, inputs, [one, two], size)]
    layouts.append(decoding(rng, inputs, [one, three], size))
    one.num_computed_tokens -= 1  # its last token is computed again
    one.token_ids.pop()
    layouts.append(decoding(rng, inputs, [one, three], size))
    one.epoch += 1  # its blocks may be others
    one.block_table.replace(0, 9)
    layouts.append(decoding(rng, inputs, [one, three], size))
    assert len(set(map(id, layouts))) == len(layouts)


def test_prompts_and_window_groups_have_no_layout():
    inputs = ModelInputs(4)
    prompt = sequence_with([10, 11, 12], 0, [7])
    assert inputs.of([(prompt, 3)], [2], wants_best=True).layout is None
    one = make_sequence([10, 11], num_groups=2)
    one.num_computed_tokens = 1
    for table in one.block_tables:
        table.append(3)
    assert inputs.of([(one, 1)], [0], wants_best=True).layout is None


def test_the_best_tokens_are_wanted_or_not_in_each_step():
    inputs = ModelInputs(16)
    sequence = sequence_with([10, 11, 12], 1, [7])
    for wants_best in (True, True, False, True):
        batch = inputs.of([(sequence, 1)], [0], wants_best=wants_best)
        assert batch.wants_best == wants_best
