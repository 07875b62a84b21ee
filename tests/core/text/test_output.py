from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.messages import SampledLogprob
from core.text.detokenizer import ByteDetokenizer
from core.text.output import OutputAssembler


class Script:
    """An OutputAssembler whose i-th token has the i-th of some byte strings."""

    def __init__(self, *tokens, stop=(), include_stop=False):
        self.tokens = tokens
        detokenizer = ByteDetokenizer(tokens.__getitem__)
        self.output = OutputAssembler(detokenizer, stop=stop, include_stop=include_stop)

    def feed(self, index, **kwargs):
        """Feed one token; return the released text, and ids and offsets of released entries."""
        self.output.feed(index, SampledLogprob(index, -1.0), **kwargs)
        return self.take()

    def take(self):
        text, _, entries = self.output.take()
        return text, [(entry.token_id, entry.text_offset) for entry in entries]

    def finish(self):
        self.output.finish()
        return self.take()

    def run(self):
        for index in range(len(self.tokens)):
            self.output.feed(index, SampledLogprob(index, -1.0))
            if self.output.matched is not None:
                break
        return self.finish()


def test_text_and_entries_are_released_together():
    script = Script(b"Hello", b" world")
    assert script.feed(0) == ("Hello", [(0, 0)])
    assert script.feed(1) == (" world", [(1, 5)])
    assert script.finish() == ("", [])


def test_an_unfinished_character_is_held_back():
    script = Script(b"a", b"\xe2\x82", b"\xac", b"b")
    assert script.feed(0) == ("a", [(0, 0)])
    assert script.feed(1) == ("", [])
    assert script.feed(2) == ("€", [(1, 1), (2, 1)])
    assert script.feed(3) == ("b", [(3, 2)])


def test_an_unfinished_character_at_the_end_is_one_replacement():
    script = Script(b"a", b"\xf0\x9f")
    script.feed(0)
    script.feed(1)
    assert script.finish() == ("\N{REPLACEMENT CHARACTER}", [(1, 1)])


def test_held_text_keeps_its_entries_until_a_mismatch():
    script = Script(b"ab\n", b"\n", b"c", stop=["\n\n\n"])
    assert script.feed(0) == ("ab", [])
    assert script.feed(1) == ("", [])
    assert script.feed(2) == ("\n\nc", [(0, 0), (1, 3), (2, 4)])


def test_held_text_is_released_at_the_end():
    script = Script(b"ab", b"S", stop=["STOP"])
    script.feed(0)
    assert script.feed(1) == ("", [])
    assert script.finish() == ("S", [(1, 2)])


def test_entries_end_with_the_token_in_which_the_text_ends():
    script = Script(b"ab", b"cS", b"TOP", b"d", stop=["STOP"])
    assert script.run() == ("abc", [(0, 0), (1, 2)])
    assert script.output.matched == "STOP"


def test_a_token_after_the_cut_has_no_entry():
    assert Script(b"ab", b"ST", b"OP", stop=["STOP"]).run() == ("ab", [(0, 0)])


def test_an_included_stop_keeps_its_entries():
    script = Script(b"ab", b"ST", b"OPx", stop=["STOP"], include_stop=True)
    assert script.run() == ("abSTOP", [(0, 0), (1, 2), (2, 4)])


def test_a_match_at_the_start_leaves_no_text():
    assert Script(b"x", stop=["x"]).run() == ("", [])


def test_no_text_follows_a_match():
    script = Script(b"ax", b"b", stop=["x"])
    assert script.feed(0) == ("a", [(0, 0)])
    assert script.feed(1) == ("", [])
    script.output.feed_end(SampledLogprob(1, -1.0))
    assert script.finish() == ("", [])


def test_the_end_token_has_an_entry_but_no_text():
    script = Script(b"ab", b"<end>", stop=["zz"])
    script.feed(0)
    script.output.feed_end(SampledLogprob(1, -0.5))
    assert script.take() == ("", [])
    assert script.finish() == ("", [(1, 2)])


def test_stop_strings_are_ignored_before_min_tokens():
    script = Script(b"aSTOPb", b"ST", b"OPc", b"STOP", stop=["STOP"])
    assert script.feed(0, check_stops=False)[0] == "aSTOPb"
    assert script.feed(1, check_stops=False)[0] == "ST"
    assert script.feed(2)[0] == "OPc"  # a match must not use earlier characters
    assert script.output.matched is None
    assert script.feed(3)[0] == ""
    assert script.output.matched == "STOP"


def test_a_replacement_character_at_the_end_may_match():
    script = Script(b"a", b"\xe2", stop=["\N{REPLACEMENT CHARACTER}"])
    assert script.run() == ("a", [(0, 0)])
    assert script.output.matched is not None


def test_finish_may_be_called_twice():
    script = Script(b"\xe2")
    script.feed(0)
    assert script.finish()[0] == "\N{REPLACEMENT CHARACTER}"
    assert script.finish() == ("", [])


def test_without_log_probabilities_there_are_no_entries():
    output = OutputAssembler(ByteDetokenizer([b"a"].__getitem__))
    output.feed(0)
    output.feed_end()
    output.finish()
    assert output.take() == ("a", "", ())


def test_an_entry_keeps_its_values():
    output = OutputAssembler(ByteDetokenizer([b"a"].__getitem__))
    output.feed(0)
    output.feed(0, SampledLogprob(0, -0.25, ((0, -0.25), (7, -2.0))))
    assert output.take()[2] == (SampledLogprob(0, -0.25, ((0, -0.25), (7, -2.0)), 1),)


@given(
    tokens=st.lists(
        st.one_of(
            st.binary(max_size=3),
            st.text(alphabet="ab€🙂", max_size=3).map(str.encode),
        ),
        max_size=12,
    ),
    stop=st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=2),
    include=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_streamed_output_equals_whole_output(tokens, stop, include):
    whole = Script(*tokens, stop=stop, include_stop=include).run()
    script = Script(*tokens, stop=stop, include_stop=include)
    text, entries = "", []
    for index in range(len(tokens)):
        new_text, new_entries = script.feed(index)
        text, entries = text + new_text, entries + new_entries
        assert all(offset < len(text) for _, offset in entries)
        if script.output.matched is not None:
            break
    end_text, end_entries = script.finish()
    text, entries = text + end_text, entries + end_entries
    assert (text, entries) == whole
    assert [token_id for token_id, _ in entries] == list(range(len(entries)))
    joined = b"".join(tokens[: len(entries)]).decode(errors="replace")
    assert joined.startswith(text)
    if script.output.matched is None:
        assert joined == text
        assert len(entries) == len(tokens)
        assert not any(one in text for one in stop)


@pytest.mark.parametrize("size", [1, 5])
def test_several_tokens_may_be_fed_before_taking(size):
    script = Script(*[b"ab"] * size)
    assert script.run() == ("ab" * size, [(i, 2 * i) for i in range(size)])
