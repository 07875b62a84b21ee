import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tools import FunctionDefinition
from server.parsers.base import CallArguments, CallBegin, Content, Reasoning, new_call_id
from server.parsers.chain import Call, ChoiceParser, Message, fold
from server.parsers.reasoning import reasoning_parser
from server.parsers.tool import tool_parser
from tests.server.parsers import laws

CALL = '<tool_call>{"name": "ping", "arguments": {"a": 1}}</tool_call>'


def make(*, tail=""):
    return ChoiceParser(reasoning_parser("think")(tail), laws.calls_parser("hermes"))


@pytest.mark.parametrize(
    ("tail", "text", "message"),
    [
        ("", "Hello", Message("Hello", None, ())),
        ("", "", Message("", None, ())),
        (
            "",
            f"<think>\nI call {CALL}?\n</think>\n\nYes.\n{CALL}",
            Message("Yes.", f"I call {CALL}?", (Call("call_0", "ping", '{"a": 1}'),)),
        ),
        (
            "<think>\n",
            f"Hm.\n</think>\n\n{CALL}\n{CALL}",
            Message(
                None,
                "Hm.",
                (Call("call_0", "ping", '{"a": 1}'), Call("call_1", "ping", '{"a": 1}')),
            ),
        ),
        ("<think>\n", f"Hm. {CALL}", Message("", f"Hm. {CALL}", ())),
        ("", "<think>Hm.</think>a <tool", Message("a <tool", "Hm.", ())),
        ("", "<thi", Message("<thi", None, ())),
    ],
)
def test_thinking_then_calls(tail, text, message):
    assert laws.check_splits(lambda: make(tail=tail), text) == message
    assert make(tail=tail).whole(text) == message


def test_without_parsers_text_passes_through():
    parser = ChoiceParser()
    assert parser.feed(f" <think>{CALL} ") == [Content(f" <think>{CALL} ")]
    assert parser.feed("") == []
    assert parser.finish() == []
    assert not parser.is_reasoning


def test_with_one_parser():
    thinking = ChoiceParser(reasoning_parser("think")("<think>"))
    assert thinking.is_reasoning
    assert thinking.feed("a</think>b") == [Reasoning("a"), Content("b")]
    assert not thinking.is_reasoning
    calling = ChoiceParser(calls=laws.calls_parser("hermes"))
    assert calling.feed(f"a{CALL}") == [
        Content("a"),
        CallBegin(0, "call_0", "ping"),
        CallArguments(0, '{"a": 1}'),
    ]
    assert calling.finish() == []


PIECES = ["<think>", "</think>", "\n", " ", "a", "<", "</thi", "nk>", "<tool_call>"]


@settings(deadline=None)
@given(
    tail=st.sampled_from(["", "<think>\n", "</think>\n\n"]),
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
)
def test_a_transparent_parser_can_be_left_out(tail, pieces):
    parser = ChoiceParser(reasoning_parser("think")(tail))
    for piece in pieces:
        was_transparent = parser.is_transparent
        deltas = parser.feed(piece)
        if was_transparent:
            assert deltas == [Content(piece)]
            assert parser.is_transparent
    if parser.is_transparent:
        assert parser.finish() == []


def test_who_looks_for_calls_is_never_transparent():
    parser = make()
    parser.feed("text")
    assert not parser.is_transparent
    assert ChoiceParser().is_transparent


def test_folding():
    assert fold([]) == Message("", None, ())
    deltas = [
        Reasoning("x"),
        Reasoning("y"),
        CallBegin(0, "i", "f"),
        CallArguments(0, "{"),
        CallArguments(0, "}"),
        CallBegin(1, "j", "g"),
        Content("z"),
    ]
    assert fold(deltas) == Message("z", "xy", (Call("i", "f", "{}"), Call("j", "g", "")))


def test_ids():
    ids = {new_call_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", each) for each in ids)
    (begin, _) = tool_parser("hermes")([FunctionDefinition(name="ping")]).feed(CALL)
    assert re.fullmatch(r"call_[A-Za-z0-9]{24}", begin.id)
