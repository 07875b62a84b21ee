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
    trace.works()
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


class Renderer:
    """Says what it is asked."""

    media_type, keep_alive = "text/x", b":"

    def weight(self, index, output):
        return index + len(output.text)

    def begin(self):
        return b"begin"

    def feed(self, index, output):
        return f"{index}{output.text}".encode()

    def end(self):
        return b"end"

    def error(self, message, cause=None):
        return f"{message}{cause}".encode()

    def whole(self, outputs):
        return "".join(output.text for output in outputs).encode()


class Tokenizer:
    def decode(self, ids, *, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(map(chr, ids))


def test_nothing_but_listening_changes():
    texts = Texts()
    heard = texts.heard(Renderer())
    assert (heard.media_type, heard.keep_alive) == ("text/x", b":")
    assert heard.weight(3, out(text="ab")) == 5
    assert heard.begin() == b"begin"
    assert heard.end() == b"end"
    assert heard.error("no", ValueError("x")) == b"nox"
    assert heard.whole([out(text="a"), out(text="b")]) == b"ab"
    assert texts.text == "a\n\nb"


def test_streamed_choices_are_told_apart():
    texts = Texts()
    heard = texts.heard(Renderer())
    assert heard.feed(1, out(text="other")) == b"1other"
    heard.feed(0, out(thinking="hm", text=""))
    heard.feed(0, out(text="on"))
    heard.feed(0, out(text="e"))
    assert texts.text == "hmone\n\nother"


def test_prompts_are_decoded():
    texts = Texts()
    assert (texts.prompt, texts.text) == ("", "")
    texts.take_prompts([[72, 105], [33]], Tokenizer())
    assert texts.prompt == "Hi\n\n!"
