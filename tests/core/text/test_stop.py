from __future__ import annotations

import itertools
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from core.text.stop import StopMatcher
from tests.support.each import each


def stream(stops, pieces, *, include=False):
    matcher = StopMatcher(stops, include)
    released = [matcher.feed(piece) for piece in pieces]
    released.append(matcher.finish())
    return "".join(released), matcher.matched


def reference(stops, text, *, include):
    """Check every prefix of the text."""
    for end in range(1, len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return text[: end if include else end - len(stop)], stop
    return text, None


small_text = st.text(alphabet="ab", max_size=12)
some_stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=3)


@given(stops=some_stops, text=small_text, cuts=st.lists(st.integers(0, 12)), include=st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_split_of_the_text_gives_the_same(stops, text, cuts, include):
    edges = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert stream(stops, pieces, include=include) == reference(stops, text, include=include)


@given(stops=some_stops, text=small_text)
@settings(max_examples=200, deadline=None)
def test_only_text_that_may_start_a_match_is_held_back(stops, text):
    matcher = StopMatcher(stops)
    released = ""
    for end, character in enumerate(text, 1):
        released += matcher.feed(character)
        if matcher.matched is not None:
            break
        tails = (text[start:end] for start in range(end + 1))
        held = next(tail for tail in tails if any(stop.startswith(tail) for stop in stops))
        assert released == text[: end - len(held)]


@each(
    ("stops", "pieces", "text", "matched"),
    [
        (["STOP"], ["a ST", "OP b"], "a ", "STOP"),
        (["STOP"], ["a ST", "AY"], "a STAY", None),
        (["STOP"], ["a STO"], "a STO", None),
        (["late", "b"], ["a b late"], "a ", "b"),
        (["bcd", "c"], ["abcd"], "ab", "c"),  # ends first, begins later
        (["bc", "abc"], ["abc"], "a", "bc"),  # end at the same place: the first in the list
        (["abc", "bc"], ["abc"], "", "abc"),
        (["aab"], ["aa", "a", "b"], "a", "aab"),
        (["\n\n"], ["x\n", "\ny"], "x", "\n\n"),
        (["日本"], ["a日", "本b"], "a", "日本"),
    ],
)
def test_examples(stops, pieces, text, matched):
    assert stream(stops, pieces) == (text, matched)


def test_an_included_match_is_kept_and_later_text_is_dropped():
    assert stream(["ST"], ["a S", "Tb"], include=True) == ("a ST", "ST")


def test_no_text_follows_a_match():
    matcher = StopMatcher(["x"])
    assert matcher.feed("ax") == "a"
    assert matcher.feed("more") == ""
    assert matcher.finish() == ""


def test_a_huge_stop_string_is_matched_in_linear_time():
    matcher = StopMatcher(["ab" * 500_000 + "c", "b" * 1_000_000])
    started = time.process_time()
    for _ in range(20_000):
        matcher.feed("abab")
    matcher.feed("x")
    assert time.process_time() - started < 2
