"""How long grammars take is counted, once for each compilation and each filling of masks."""

from __future__ import annotations

import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import choice, lark, regex
from core.grammar.compiler import GrammarTimes
from tests.support.constrained import Decoder, tiny


def test_a_grammar_counts_when_it_is_compiled_and_not_when_it_is_known():
    decoder = Decoder(tiny())
    for _ in range(3):
        decoder.compiler.check(choice(["yes", "no"]))
    decoder.compiler.check(regex("a+"))
    counted = decoder.compiler.times.compilations
    assert counted.num_values == 2
    assert 0 < counted.total < 60


def test_a_refused_grammar_counts_once():
    decoder = Decoder(tiny())
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            decoder.compiler.check(lark("start: undefined"))
    assert decoder.compiler.times.compilations.num_values == 1


def test_masks_count_for_all_threads_that_fill_them():
    decoder = Decoder(tiny())
    sequences = [decoder.sequence(choice(["yes", "no"]), seed=seed) for seed in range(2)]
    decoder.run(*sequences)
    counted = decoder.compiler.times.masks
    assert counted.num_values >= 3
    assert 0 < counted.total < 60


def test_histograms_of_threads_add_up():
    times = GrammarTimes()
    first, second = times.mask_histogram(), times.mask_histogram()
    first.observe(0.25)
    second.observe(0.5, 2)
    assert (times.masks.num_values, times.masks.total) == (3, 1.25)
