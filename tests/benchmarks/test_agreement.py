"""How the agreement of greedy answers is counted."""

from benchmarks.agreement import agreement


def test_tokens_before_a_difference_whole_answers_and_tokens_at_their_place():
    first = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert agreement(first, first) == (1.0, 2, 1.0)
    assert agreement(first, [[1, 2, 3, 4], [5, 0, 7, 8]]) == (5 / 8, 1, 7 / 8)
    assert agreement(first, [[0, 2, 3, 4], [0, 0, 0, 0]]) == (0.0, 0, 3 / 8)
