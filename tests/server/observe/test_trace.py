"""Traces: one phase follows another, and none is lost. Texts that are kept."""

import pytest

from server.observe.trace import SCOPE_KEY, Texts, Trace, trace_of
from tests.support.clock import Clock
from tests.support.engines import out


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def trace(clock):
    return Trace(clock=clock)


def test_phases_follow_one_another(trace, clock):
    clock.now += 1
    trace.enter("upload")
    clock.now += 2
    trace.enter("waiting")
    clock.now += 4
    trace.enter("worker")
    clock.now += 8
    trace.enter("waiting")
    clock.now += 16
    trace.responds(200)
    clock.now += 32
    expected = {"waiting": 1 + 4 + 16, "upload": 2, "worker": 8, "delivery": 32}
    assert trace.times(clock()) == expected
    assert trace.times(clock()) == expected, "it only reads"


def test_the_engine_has_the_last_word(trace, clock):
    clock.now += 1
    trace.submitted(object())
    assert trace.submitted_at == 101
    clock.now += 2
    trace.responds(200)
    clock.now += 3
    assert trace.times(clock()) == {"waiting": 1, "engine": 5}
    assert trace.status == 200


def test_a_request_without_a_recorder_has_no_record(trace):
    assert trace.end() is None
    trace.recorder = lambda one: (one, "record")
    assert trace.end() == (trace, "record")


def test_the_trace_of_a_scope(trace):
    assert trace_of({"state": {SCOPE_KEY: trace}}) is trace
    assert trace_of({}) is not trace_of({}), "nobody follows these"


class Tokenizer:
    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(map(chr, ids))


def test_choices_are_told_apart():
    texts = Texts()
    texts.take(1, out(text="other"))
    texts.take(0, out(thinking="hm", text=""))
    texts.take(0, out(text="on"))
    texts.take(0, out(text="e"))
    assert texts.text == "hmone\n\nother"


def test_prompts_are_decoded():
    texts = Texts()
    assert (texts.prompt, texts.text) == ("", "")
    texts.take_prompts([[72, 105], [33]], Tokenizer())
    assert texts.prompt == "Hi\n\n!"
