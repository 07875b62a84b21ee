from __future__ import annotations

import torch

from core.sampling.processors.bad_words import BadWords
from tests.core.sampling.builders import make_logits, make_sequence
from tests.support.each import each


@each(
    ("output", "words", "banned"),
    [
        ((), ((5,),), {5}),
        ((), ((5, 6),), set()),
        ((5,), ((5, 6),), {6}),
        ((5, 7), ((5, 6),), set()),
        ((4, 5), ((4, 5, 6), (5, 7), (4, 8)), {6, 7}),
        ((5,), ((5, 5), (5, 6), (6,)), {5, 6}),
        ((9,), ((1, 2, 9, 6),), set()),  # prompt tokens do not count
        ((9,), ((),), set()),
        ((3, 4, 5), ((3, 4, 5, 6), (4, 5, 7), (5, 8), (4, 5, 9), (2, 4, 5, 1)), {6, 7, 8, 9}),
    ],
)
def test_the_token_that_would_complete_a_word_is_masked(output, words, banned):
    logits = make_logits(2, 12)
    before = logits.clone()
    sequence = make_sequence(prompt=(1, 2), output=output, bad_words_ids=words)
    BadWords().apply(logits, [1], [sequence])
    expected = before.clone()
    expected[1, sorted(banned)] = -torch.inf
    assert torch.equal(logits, expected)
