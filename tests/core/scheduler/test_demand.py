from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scheduler.demand import FIRST_EXPECTATION, Demand, peak_growth
from core.state.sequence import Sequence
from tests.support.builders import make_sequence


def after(num_output_tokens: int, max_tokens: int = 100, num_prompt_tokens: int = 8) -> Sequence:
    sequence = make_sequence(range(num_prompt_tokens), max_tokens=max_tokens)
    sequence.token_ids += [0] * num_output_tokens
    return sequence


def learned(*ends: tuple[int, int]) -> Demand:
    demand = Demand()
    for num_output_tokens, max_tokens in ends:
        demand.observe_end(after(num_output_tokens, max_tokens))
    return demand


def test_at_first_all_of_max_tokens_is_expected():
    assert Demand().remaining_tokens(after(0)) == 100
    assert Demand().remaining_tokens(after(30)) == 70
    assert Demand().total_tokens(after(30)) == 108


def test_at_first_a_very_large_max_tokens_is_not_believed():
    assert Demand().remaining_tokens(after(0, max_tokens=100_000)) == FIRST_EXPECTATION


def test_the_first_ends_count_most():
    assert learned((0, 100)).remaining_tokens(after(0)) == 100  # it was never sampled
    assert learned((20, 100)).remaining_tokens(after(0)) == pytest.approx(60)
    assert learned((20, 100), (30, 100)).remaining_tokens(after(0)) == pytest.approx(50)


def test_the_share_follows_what_ended_last():
    demand = learned(*[(10, 100)] * 50)
    assert demand.remaining_tokens(after(0)) == pytest.approx(10, abs=1)
    for _ in range(50):
        demand.observe_end(after(90))
    assert demand.remaining_tokens(after(0)) == pytest.approx(87, abs=1)


def test_other_sizes_of_max_tokens_have_other_shares():
    demand = learned(*[(20, 4000)] * 50, *[(100, 100)] * 50)
    assert demand.remaining_tokens(after(0, max_tokens=4000)) < 60
    assert demand.remaining_tokens(after(0, max_tokens=100)) == pytest.approx(100)


def test_an_output_beyond_the_expected_length_is_expected_to_go_on():
    demand = learned(*[(20, 100)] * 200)
    assert demand.remaining_tokens(after(40)) == pytest.approx(0.2 * 60 * 2 / 3, rel=0.01)
    assert demand.remaining_tokens(after(100)) == 0


def growth(*sequences: Sequence) -> float:
    ends = map(Demand().end_of, sequences)
    return peak_growth(ends, block_size=4, blocks_per_token=1 / 4)


def test_the_peak_of_one_sequence_is_its_remaining_length():
    assert growth(after(0, max_tokens=20)) == 5


def test_what_an_earlier_end_frees_is_used_again():
    short, long = after(0, 4, num_prompt_tokens=8), after(0, 12, num_prompt_tokens=4)
    assert growth(short, long) == 2  # 1 block each, then 2 freed and 2 more allocated


blocks = st.tuples(st.integers(1, 12), st.integers(1, 30))


@given(st.lists(blocks, max_size=8))
def test_the_peak_is_that_of_a_simulation(lengths):
    """In tokens: every sequence grows by one in each step, and frees all when it ends."""
    sequences = [after(0, max_tokens, num_prompt_tokens=n) for n, max_tokens in lengths]
    held = sum(s.num_tokens for s in sequences)
    peak = 0
    for step in range(31):
        alive = [s for s in sequences if s.params.max_tokens >= step]
        peak = max(peak, sum(s.num_tokens + step for s in alive) - held)
    ends = map(Demand().end_of, sequences)
    assert peak_growth(ends, block_size=1, blocks_per_token=1) == peak


def test_a_request_that_only_scores_its_prompt_is_expected_to_sample_nothing():
    demand = Demand()
    assert demand.remaining_tokens(make_sequence(max_tokens=0)) == 0
    assert growth(make_sequence(max_tokens=0), make_sequence(max_tokens=8)) == 8 / 4 - 3 / 4
