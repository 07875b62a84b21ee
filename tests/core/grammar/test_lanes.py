"""Late, slow and failing masks: what they do to their own sequence, and not to others."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from core.contract.grammar import choice, json_object, lark, regex
from core.grammar import lanes as lanes_module
from core.grammar import progress as progress_module
from core.grammar.processor import GrammarProcessor
from tests.support.constrained import Decoder
from tests.support.engines import DEADLINE

AMBIGUOUS = lark('start: e\ne: e e e | e e | "a" | "b" | "ab"')
"""Each further token makes the next mask slower."""

USES_UP_ITS_LEXER = regex("(.{0,300}a){1,30}")


class Gate:
    """A job that keeps a lane busy until it is opened; steps do not wait for masks."""

    def __init__(self, processor: GrammarProcessor, lane: str = "quick") -> None:
        self._processor = processor
        self._opened = threading.Event()
        self._executor = getattr(processor._lanes, f"_{lane}")._executor
        self._executor.submit(self._opened.wait)
        processor._max_wait_seconds = 0.0

    def open(self) -> None:
        self._opened.set()
        self._processor._max_wait_seconds = 60.0

    def wait(self) -> None:
        """Wait until the lane has done what was submitted so far."""
        self._executor.submit(lambda: None).result(DEADLINE)


@pytest.fixture
def thread_names(monkeypatch):
    """The thread of each mask, without its number."""
    names = []
    whole = lanes_module.Masks.fill

    def fill(masks, rows):
        names.extend([threading.current_thread().name.rpartition("_")[0]] * len(rows))
        return whole(masks, rows)

    monkeypatch.setattr(lanes_module.Masks, "fill", fill)
    return names


def test_a_late_mask_leaves_out_its_own_sequence_only():
    decoder = Decoder()
    expected = decoder.run(decoder.sequence(regex("[ab]{9}"), seed=1))
    late = decoder.sequence(regex("[ab]{9}"), seed=1)
    free = decoder.sequence(None, seed=2)
    decoder.step([late, free])
    gate = Gate(decoder.processor)
    for _ in range(3):
        decoder.step([late, free])
        assert late.awaits_mask
        assert late.failure is None
    assert late.num_output_tokens == 1
    assert free.num_output_tokens == 4
    gate.open()
    assert decoder.run(late) == expected
    assert not late.awaits_mask


def test_a_late_mask_is_filled_once(thread_names):
    decoder = Decoder()
    late = decoder.sequence(regex("[ab]{9}"), seed=1)
    decoder.step([late])
    gate = Gate(decoder.processor)
    for _ in range(3):
        decoder.step([late])
    gate.open()
    decoder.step([late])
    assert len(thread_names) == 2


def test_masks_of_sequences_that_ended_are_not_filled(thread_names):
    decoder = Decoder()
    ended = decoder.sequence(regex("[ab]{9}"), seed=1)
    decoder.step([ended])
    gate = Gate(decoder.processor)
    decoder.step([ended])
    ended.status = type(ended.status).FINISHED
    gate.open()
    decoder.step([decoder.sequence(choice(["yes"]))])
    assert len(thread_names) == 2


def test_slow_masks_of_sequences_that_ended_are_not_filled(thread_names):
    decoder = Decoder()
    ended = decoder.sequence(regex("[ab]{9}"), seed=1)
    decoder.step([ended])
    decoder.processor._jobs[ended].progress.seconds = 1.0  # as if measured
    decoder.step([ended])
    decoder.processor._jobs[ended].progress.seconds = 1.0
    gate = Gate(decoder.processor, "slow")
    decoder.step([ended])
    ended.status = type(ended.status).FINISHED
    gate.open()
    gate.wait()
    assert thread_names == ["grammar", "grammar-slow"]


def test_a_sequence_with_slow_masks_moves_to_the_slow_lane_and_back(thread_names):
    decoder = Decoder()
    sequence = decoder.sequence(regex("[ab]{9}"), seed=1)
    expected = decoder.run(decoder.sequence(regex("[ab]{9}"), seed=1))
    thread_names.clear()
    decoder.step([sequence])
    decoder.processor._jobs[sequence].progress.seconds = 1.0  # as if measured
    decoder.step([sequence])
    decoder.step([sequence])
    assert thread_names == ["grammar", "grammar-slow", "grammar"]
    assert decoder.run(sequence) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="threads share one priority")
def test_the_slow_lane_has_a_lower_priority():
    decoder = Decoder()
    sequence = decoder.sequence(regex("[ab]{9}"), seed=1)
    decoder.step([sequence])
    decoder.processor._jobs[sequence].progress.seconds = 1.0  # as if measured
    decoder.step([sequence])
    lanes = decoder.processor._lanes
    quick, slow = (
        lane._executor.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        for lane in (lanes._quick, lanes._slow)
    )
    assert slow.result() > quick.result()


def test_new_sequences_are_measured_alone_and_then_filled_together(monkeypatch):
    decoder = Decoder()
    sizes = []
    whole = lanes_module.Masks.fill
    monkeypatch.setattr(
        lanes_module.Masks, "fill", lambda *args: sizes.append(len(args[1])) or whole(*args)
    )
    monkeypatch.setattr(lanes_module, "MAX_TOGETHER_SECONDS", 60.0)
    sequences = [decoder.sequence(json_object(), seed=i) for i in range(3)]
    decoder.step(sequences)
    assert sizes == [1, 1, 1]
    for sequence in sequences:  # whatever was measured
        decoder.processor._jobs[sequence].progress.seconds = 0.0
    decoder.step(sequences)
    assert sizes[3:] == [3]
    monkeypatch.setattr(lanes_module, "MAX_TOGETHER_SECONDS", 0.0)
    decoder.step(sequences)
    decoder.step(sequences)  # one of the three was slow: which one?
    assert sizes[4:] == [3, 1, 1, 1]


def test_masks_that_take_too_long_end_their_sequence(monkeypatch):
    monkeypatch.setattr(progress_module, "PAID_SECONDS", 0.0005)
    monkeypatch.setattr(progress_module, "MAX_DEBT_SECONDS", 0.02)
    monkeypatch.setattr(progress_module, "MAX_MASK_SECONDS", 60.0)
    decoder = Decoder()
    guilty = decoder.sequence(AMBIGUOUS, seed=1, logit_bias={decoder.eos: -100.0})
    sound = decoder.sequence(regex("[a-z]{600}"), seed=2, max_tokens=600)
    failed = [False]
    while not failed[0]:
        assert guilty.num_output_tokens < 120
        failed = decoder.step([guilty, sound])
        assert not any(failed[1:])
    assert guilty.failure.startswith("The grammar of this request cannot continue: it is too ")
    assert guilty.failure.endswith(" ms")
    assert decoder.step([sound]) == [False]


def test_one_slow_mask_ends_its_sequence(monkeypatch):
    monkeypatch.setattr(progress_module, "MAX_MASK_SECONDS", 0.0)
    decoder = Decoder()
    assert decoder.step([decoder.sequence(choice(["yes"])), decoder.sequence(None)]) == [
        True,
        False,
    ]


def test_a_sequence_that_uses_up_its_lexer_ends_no_other_of_the_same_grammar(monkeypatch):
    monkeypatch.setattr(progress_module, "MAX_MASK_SECONDS", 60.0)
    decoder = Decoder()
    (a,) = decoder.tokenizer.encode("a", add_special_tokens=False)
    guilty = decoder.sequence(USES_UP_ITS_LEXER, seed=0, max_tokens=400)
    sound = decoder.sequence(USES_UP_ITS_LEXER, logit_bias={a: 100.0}, max_tokens=400)
    decoder.step([guilty, sound])
    while not decoder.step([guilty])[0]:
        assert guilty.num_output_tokens < 400
    assert guilty.failure is not None
    for _ in range(20):
        assert decoder.step([sound]) == [False]
    assert set(decoder.output_ids(sound)) == {a}


def test_a_lexer_that_is_used_up_is_replaced_for_later_sequences(monkeypatch):
    monkeypatch.setattr(progress_module, "MAX_MASK_SECONDS", 60.0)
    decoder = Decoder()
    sequence = decoder.sequence(USES_UP_ITS_LEXER, max_tokens=400, cache_salt="mine")
    (first,) = decoder.compiler._cache._compiled.values()
    while not decoder.step([sequence])[0]:
        assert sequence.num_output_tokens < 400
    decoder.compiler._background.shutdown()
    (renewed,) = decoder.compiler._cache._compiled.values()
    assert renewed.matcher is not first.matcher


def test_a_grammar_that_is_not_kept_is_compiled_on_a_thread_of_its_own(thread_names):
    decoder = Decoder()
    sequence = decoder.sequence(choice(["yes"]))
    decoder.compiler._cache.drop(next(iter(decoder.compiler._cache._compiled)))
    assert decoder.run(sequence) == ["yes"]
    assert thread_names[0] == "grammar-again"


def test_a_sequence_finds_the_grammar_that_was_compiled_for_its_salt(thread_names):
    decoder = Decoder()
    assert decoder.run(decoder.sequence(choice(["yes"]), cache_salt="mine")) == ["yes"]
    assert "grammar-again" not in thread_names


def test_an_error_of_ours_ends_the_sequences_of_the_job(monkeypatch):
    decoder = Decoder()
    sequences = [decoder.sequence(choice(["yes"]), seed=i) for i in range(2)]

    def fill(*_):
        raise ValueError("secret")

    monkeypatch.setattr(lanes_module.Masks, "fill", fill)
    assert decoder.step([*sequences, decoder.sequence(None)]) == [True, True, False]
    assert "ValueError" in sequences[0].failure
    assert "secret" not in sequences[0].failure
