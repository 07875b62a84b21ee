from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.messages import SampledLogprob
from core.contract.params import Thinking
from core.text.output import OutputAssembler
from core.text.thinking import ThinkingScanner
from tests.support.each import each
from tests.support.scripted import ScriptedTokenizer


def make_thinking(**fields):
    return Thinking(**{"begin": "<think>", "end": "</think>", "end_token_ids": (1,), **fields})


def scan(pieces, **fields):
    """Source, thinking and answer of a text, after checking what each piece gave."""
    scanner = ThinkingScanner(make_thinking(**fields))
    splits = []
    for piece in pieces:
        splits.append(scanner.feed(piece))
        assert not (splits[-1].answer and not scanner.is_over)
    splits.append(scanner.finish())
    return tuple("".join(parts) for parts in zip(*splits, strict=True))


CASES = [
    # is_open, text, source, thinking, answer
    (False, "", "", "", ""),
    (False, "Hello", "", "", "Hello"),
    (False, "\n Hello\n", "", "", "\n Hello\n"),
    (False, "  ", "", "", "  "),
    (False, "a <think>b</think>", "", "", "a <think>b</think>"),
    (False, "<thin", "", "", "<thin"),
    (False, "<thing>", "", "", "<thing>"),
    (False, "<thin air</think>", "", "", "<thin air</think>"),
    (False, "\v<think>x", "", "", "\v<think>x"),
    (
        False,
        "<think>\nHm.\n\nWell.\n</think>\n\nHello\n",
        "<think>\nHm.\n\nWell.\n</think>",
        "Hm.\n\nWell.",
        "\n\nHello\n",
    ),
    (False, "\n <think>Hm.</think>Hello", "\n <think>Hm.</think>", "Hm.", "Hello"),
    (False, "<think>\n\n</think>\n\nHi", "<think>\n\n</think>", "", "\n\nHi"),
    (False, "<think></think>", "<think></think>", "", ""),
    (False, "<think>", "<think>", "", ""),
    (False, "<think>\n", "<think>\n", "", ""),
    (False, "<think>Hm", "<think>Hm", "Hm", ""),
    (False, "<think>Hm </thi", "<think>Hm </thi", "Hm </thi", ""),
    (False, "<think>a</th </think>b</think>", "<think>a</th </think>", "a</th ", "b</think>"),
    (False, "<think>a\n\nb\n", "<think>a\n\nb\n", "a\n\nb\n", ""),
    (True, "Hm.\n</think>\n\nHello", "Hm.\n</think>", "Hm.", "\n\nHello"),
    (True, "\n<think>\nHm.</think>Hello", "\n<think>\nHm.</think>", "Hm.", "Hello"),
    (True, "Hm, <think> is a tag.</think>", "Hm, <think> is a tag.</think>", None, ""),
    (True, "</think></think>", "</think>", "", "</think>"),
    (True, "hm </thin", "hm </thin", "hm </thin", ""),
    (True, "\n", "\n", "", ""),
    (True, "<thi", "<thi", "<thi", ""),
    (True, "", "", "", ""),
]


@each(("is_open", "text", "source", "thinking", "answer"), CASES)
def test_every_split_of_the_text_gives_the_same(is_open, text, source, thinking, answer):
    if thinking is None:
        thinking = source.removesuffix("</think>")
    for cuts in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        assert scan(pieces, is_open=is_open) == (source, thinking, answer)


@given(
    pieces=st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "\n", " ", "a"])),
    is_open=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_text(pieces, is_open):
    text = "".join(pieces)
    source, thinking, answer = whole = scan([text], is_open=is_open)
    assert scan(pieces, is_open=is_open) == scan(text, is_open=is_open) == whole
    assert source + answer == text
    assert thinking in source
    if is_open and "</think>" not in text:
        assert answer == ""


def test_thinking_is_held_back_only_where_the_end_marker_may_start():
    scanner = ThinkingScanner(make_thinking(is_open=True))
    assert scanner.feed("Hm, ").thinking == "Hm, "
    assert scanner.feed("1 <").thinking == "1 "
    assert scanner.feed(" 2\n").thinking == "< 2"
    assert scanner.feed("").thinking == ""


def counts(text, **fields):
    """The number of thinking tokens after each character, one token each."""
    scanner = ThinkingScanner(make_thinking(**fields))
    found = []
    for character in text:
        scanner.feed(character)
        found.append(scanner.num_tokens)
    return found


@each("is_open", [False, True])
@each("answer", ["", "\n\nHello!", "x</think>y", "<think>x</think>"])
def test_markers_and_thinking_are_counted(is_open, answer):
    begin = "" if is_open else "\n <think>"
    thinking = f"{begin}I should, well.\n</think>"
    found = counts(thinking + answer, is_open=is_open)
    assert found[-1] == found[len(thinking) - 1] == len(thinking)
    assert found[len(begin) : len(thinking)] == list(range(len(begin) + 1, len(thinking) + 1))
    assert set(found[: max(0, len(begin) - 1)]) <= {0}


@pytest.mark.parametrize("text", ["Hello! <think>x</think>", "<thing>", "  Hi", "<thin"])
def test_without_thinking_nothing_is_counted(text):
    assert set(counts(text)) == {0}


def test_an_end_marker_that_is_not_finished_counts():
    assert counts("x</thin></think", is_open=True)[-1] == len("x</thin></think")


def test_a_token_may_hold_both_markers():
    scanner = ThinkingScanner(make_thinking())
    assert scanner.feed("<think></think>\n\nHi") == ("<think></think>", "", "\n\nHi")
    assert scanner.num_tokens == 1
    assert scanner.is_over


@each(
    ("budget", "is_open", "pieces", "expected"),
    [
        (0, True, ["a"], [True, True]),
        (2, True, ["a", "b", "c"], [False, False, True, True]),
        (1, False, ["\n", "<th", "ink>", "a", "b"], [False, False, False, False, True, True]),
        (0, False, ["<think>a"], [False, True]),
        (1, True, ["a", "</", "think>", "b"], [False, True, True, False, False]),
        (0, False, ["a <think>", "b"], [False, False, False]),
        (None, True, ["a", "b"], [False, False, False]),
    ],
)
def test_the_budget_is_used_up_by_tokens_after_the_begin_marker(budget, is_open, pieces, expected):
    scanner = ThinkingScanner(make_thinking(budget=budget, is_open=is_open))
    found = [scanner.must_end]
    for piece in pieces:
        scanner.feed(piece)
        found.append(scanner.must_end)
    assert found == expected


def generate(text, *, stop=(), include_stop=False, **thinking):
    """Text, thinking and stop string of an output whose tokens are bytes."""
    output = OutputAssembler(
        ScriptedTokenizer().detokenizer(()),
        stop=stop,
        include_stop=include_stop,
        thinking=make_thinking(**thinking),
    )
    shown = thought = ""
    entries = []
    for token_id in [*text.encode(), None]:
        if token_id is None:
            output.finish()
        else:
            output.feed(token_id, SampledLogprob(token_id, -1.0))
        has_text = output.has_text
        new_text, new_thinking, new_entries = output.take()
        assert has_text == bool(new_text or new_thinking)
        assert not (shown and new_thinking), "thinking comes first"
        shown += new_text
        thought += new_thinking
        entries += new_entries
    assert [entry.text_offset for entry in entries] == list(range(len(entries)))
    if output.matched is None:
        assert len(entries) == len(text)  # entries of removed text are released too
    return shown, thought, output.matched


@each(
    ("is_open", "text", "expected", "matched"),
    [
        (True, "a STOP b</think>c STOP d", "a STOP b</think>c ", "STOP"),
        (True, "a STOP b", "a STOP b", None),
        (False, "<think>STOP</think>\nSTOP", "<think>STOP</think>\n", "STOP"),
        (False, "a STOP b", "a ", "STOP"),
        (False, "  STOP", "  ", "STOP"),
        (False, " <th", " <th", None),
        (True, "ST</think>OP", "ST</think>OP", None),
    ],
)
def test_stop_strings_apply_after_the_thinking(is_open, text, expected, matched):
    assert generate(text, is_open=is_open, stop=["STOP"]) == (expected, "", matched)


@pytest.mark.parametrize("is_separate", [False, True])
def test_a_stop_string_may_start_like_the_marker(is_separate):
    def stopped(text):
        return generate(text, stop=["<th"], is_separate=is_separate)

    assert stopped("<th") == ("", "", "<th")
    thinking = ("", "a") if is_separate else ("<think>a</think>", "")
    assert stopped("<think>a</think><th") == (*thinking, "<th")


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("<think>a STOP</think>\n\nHi STOP", "STOP", ("Hi ", "a STOP", "STOP")),
        ("<think>a</think>\n\nHi", "\n\n", ("", "a", "\n\n")),
        ("<think>a</think>\n\nHi", "\nH", ("", "a", "\nH")),
        (" STOP <think>", "STOP", (" ", "", "STOP")),
    ],
)
def test_thinking_is_removed_after_stop_strings_are_found(text, stop, expected):
    assert generate(text, stop=[stop], is_separate=True) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a STOP b</think>c", ("", "a ", "STOP")),
        ("<think>a</think>b STOP", ("b ", "a", "STOP")),
        ("<thSTOP", ("<th", "", "STOP")),
        (" STOP", (" ", "", "STOP")),
        ("<think>a</thi", ("", "a</thi", None)),
    ],
)
def test_stop_strings_apply_to_unexpected_thinking(text, expected):
    assert generate(text, stop=["STOP"], is_expected=False, is_separate=True) == expected


def test_a_stop_string_at_the_start_is_not_delayed_by_unexpected_thinking():
    output = OutputAssembler(
        ScriptedTokenizer().detokenizer(()),
        stop=["\n"],
        thinking=make_thinking(is_expected=False, is_separate=True),
    )
    output.feed(ord("\n"))
    assert output.matched == "\n"


@each(("is_open", "text", "source", "thinking", "answer"), CASES)
@each("stop", [(), ("no such text",)])
@each("is_expected", [False, True])
def test_separate_thinking(is_open, text, source, thinking, answer, stop, is_expected):
    if thinking is None:
        thinking = source.removesuffix("</think>")
    shown = answer.lstrip("\r\n") if source else answer
    found = generate(text, stop=stop, is_open=is_open, is_expected=is_expected, is_separate=True)
    assert found == (shown, thinking, None)


@each(("is_open", "text"), [case[:2] for case in CASES])
@each("stop", [(), ("no such text",)])
def test_thinking_that_is_not_separate_stays_in_the_text(is_open, text, stop):
    assert generate(text, stop=stop, is_open=is_open) == (text, "", None)


def test_text_is_not_held_back_without_need():
    output = OutputAssembler(ScriptedTokenizer().detokenizer(()), thinking=make_thinking())
    output.feed(ord("<"))
    assert output.take()[0] == "<"


def test_an_end_token_inside_the_thinking_counts():
    output = OutputAssembler(
        ScriptedTokenizer().detokenizer(()), thinking=make_thinking(is_open=True)
    )
    output.feed(ord("a"))
    output.feed_end()
    assert output.num_thinking_tokens == 2
