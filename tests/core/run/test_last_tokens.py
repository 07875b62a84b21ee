from __future__ import annotations

import torch

from core.batch.model_input import build_model_input
from core.run.last_tokens import LastTokens
from core.sampling.greedy import FAILED, MASKED
from tests.support.builders import make_sequence

CPU = torch.device("cpu")


def test_references_to_rows_become_tokens():
    last = LastTokens(4, CPU)
    a, b, c = (make_sequence() for _ in range(3))
    last.keep([a, b, c], torch.tensor([70, 80, 90]))
    assert last.rows == {a: 0, b: 1, c: 2}
    assert last.resolve(torch.tensor([5, -3, 0, -1, -2])).tolist() == [5, 90, 0, 70, 80]
    assert last.resolve(torch.tensor([-1, 3], dtype=torch.int32)).tolist() == [70, 3]


def test_a_row_without_a_token_becomes_token_0():
    last = LastTokens(4, CPU)
    last.keep([make_sequence(), make_sequence()], torch.tensor([FAILED, MASKED]))
    assert last.resolve(torch.tensor([-1, -2])).tolist() == [0, 0]


def test_only_the_last_step_is_kept():
    last = LastTokens(4, CPU)
    a, b = make_sequence(), make_sequence()
    last.keep([a, b], torch.tensor([70, 80]))
    last.keep([b], torch.tensor([81]))
    assert last.rows == {b: 0}
    assert last.resolve(torch.tensor([-1])).tolist() == [81]


def test_a_step_refers_to_tokens_in_flight_by_their_rows():
    streaming, prompt = make_sequence([1, 2, 3]), make_sequence([4, 5])
    streaming.block_table.append(3)
    prompt.block_table.append(4)
    streaming.num_computed_tokens, streaming.num_in_flight = 3, 1
    batch = build_model_input(
        [(streaming, 1), (prompt, 2)], [0, 2], block_size=4, rows_in_flight={streaming: 6}
    )
    assert batch.token_ids.tolist() == [-7, 4, 5]
    assert batch.positions.tolist() == [3, 0, 1]
    assert not batch.is_decode
    again = make_sequence([1, 2, 3])  # whose chunk ends with a token in flight
    again.block_table.append(3)
    again.num_in_flight = 1
    batch = build_model_input([(again, 4)], [3], block_size=4, rows_in_flight={again: 0})
    assert batch.token_ids.tolist() == [1, 2, 3, -1]
