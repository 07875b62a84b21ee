from __future__ import annotations

import itertools

import pytest

from core.contract.params import Thinking
from core.text.output import OutputText
from core.text.thinking import ThinkingGate
from tests.support.scripted import ScriptedTokenizer

CASES = [
    # opened by the prompt, text, thinking, the rest
    (True, "hm STOP </think> answer", "hm STOP </think>", " answer"),
    (True, "no end </thin", "no end </thin", ""),
    (True, "</think></think>", "</think>", "</think>"),
    (False, "<think>hm</think>yes", "<think>hm</think>", "yes"),
    (False, "\n <think>hm", "\n <think>hm", ""),
    (False, "<thin air</think>", "", "<thin air</think>"),
    (False, "answer <think>x</think>", "", "answer <think>x</think>"),
    (False, " \n", "", " \n"),
    (False, "<thi", "", "<thi"),
    (False, "", "", ""),
]


@pytest.mark.parametrize(("is_open", "text", "thought", "rest"), CASES)
def test_every_split_gives_the_same(is_open, text, thought, rest):
    for cuts in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        gate = ThinkingGate("<think>", "</think>", is_open=is_open)
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        fed = [gate.feed(piece) for piece in pieces]
        assert "".join(first for first, _ in fed) == thought
        assert "".join(second for _, second in fed) + gate.finish() == rest


def output(text, *, is_open, stop=("STOP",)):
    thinking = Thinking(begin="<think>", end="</think>", end_token_ids=(1,), is_open=is_open)
    result = OutputText(ScriptedTokenizer().detokenizer(()), stop=stop, thinking=thinking)
    for token_id in text.encode():
        result.feed(token_id)
    result.finish()
    return result.take()[0], result.matched


@pytest.mark.parametrize(
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
def test_stop_strings_begin_behind_the_thinking(is_open, text, expected, matched):
    assert output(text, is_open=is_open) == (expected, matched)


def test_a_stop_string_may_begin_like_the_marker():
    assert output("<th", is_open=False, stop=("<th",)) == ("", "<th")
    assert output("<think>a</think><th", is_open=False, stop=("<th",)) == (
        "<think>a</think>",
        "<th",
    )
