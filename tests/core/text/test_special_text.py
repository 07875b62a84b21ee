from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from core.text.special_text import SpecialText, new_mark

MARK = "#"
small_text = st.text(alphabet="<|ab>", max_size=15)


@given(
    specials=st.lists(st.text(alphabet="<|ab>", min_size=2, max_size=4), max_size=4),
    text=small_text,
)
@settings(max_examples=200, deadline=None)
def test_special_text_is_split_and_other_text_is_not(specials, text):
    special = SpecialText(specials)
    marked = special.marked(text, MARK)
    assert marked.replace(MARK, "") == text
    assert not any(one in marked for one in specials)
    assert special.occurs_in(text) == any(one in text for one in specials) == (marked != text)


def test_special_text_is_found_in_nested_values():
    special = SpecialText(["<s>"])
    for value in ("a<s>", {"<s>": 1}, {"a": ["b", {"c": "<s>"}]}, ("<s>",)):
        assert special.occurs_in(value)
    assert not special.occurs_in({"a": ["<", "s", ">", 1, None, True, 2.5]})
    marked = special.marked({"<s>": [1, None, ("<s>", True)]}, MARK)
    assert marked == {"<#s>": [1, None, ["<#s>", True]]}


def test_without_special_tokens_nothing_is_marked():
    special = SpecialText(["", "x"])
    assert not special.occurs_in("x")
    assert special.marked("x", MARK) == "x"


def test_marks_differ_and_are_digits():
    assert new_mark() != new_mark()
    assert new_mark().isdecimal()


def test_hostile_text_is_searched_in_linear_time():
    special = SpecialText([f"<unused{number}>" for number in range(6000)])
    text = "<unused" * 30_000 + "<unused77>"
    started = time.process_time()
    assert special.occurs_in(text)
    assert special.marked([text], MARK) == [text[:-9] + MARK + text[-9:]]
    assert time.process_time() - started < 1
