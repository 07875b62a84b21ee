"""Properties that every parser has for every text."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import NamedTuple

from schemas.tools import FunctionDefinition
from server.parsers.base import CallArguments, CallBegin, Content, fold
from server.parsers.tool import TOOL_PARSERS

TOOLS = [
    FunctionDefinition(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "share": {"type": "number"},
                "exact": {"type": "boolean"},
                "place": {"type": "object"},
                "tags": {"type": "array"},
                "unit": {"type": ["string", "null"]},
                "anything": {},
            },
        },
    ),
    FunctionDefinition(name="ping"),
    FunctionDefinition(name="write-file_2", parameters={"type": "object"}),
]


class Case(NamedTuple):
    text: str
    content: str | None
    calls: Sequence[tuple[str, str]] = ()


def plain(text):
    """A text that is only content."""
    return Case(text, text)


def calls_parser(family, **options):
    numbers = itertools.count()
    return TOOL_PARSERS[family](TOOLS, new_id=lambda: f"call_{next(numbers)}", **options)


def deltas_of(parser, pieces):
    deltas = []
    for piece in pieces:
        deltas += parser.feed(piece)
    return deltas + parser.finish()


def parse(make, *pieces):
    deltas = deltas_of(make(), pieces)
    check_order(deltas)
    return fold(deltas)


def check_order(deltas):
    """Check that no delta is empty, calls begin in order, and arguments are the last call's."""
    num_calls = 0
    for delta in deltas:
        if isinstance(delta, CallBegin):
            assert (delta.index, delta.id) == (num_calls, f"call_{num_calls}")
            num_calls += 1
        else:
            assert delta.text
            assert not isinstance(delta, CallArguments) or delta.index == num_calls - 1


def check_splits(make, text, *, num_random=10):
    """Check that the message is the same however the text is cut."""
    whole = parse(make, text)
    assert parse(make, *text) == whole
    for cut in range(len(text) + 1):
        assert parse(make, text[:cut], text[cut:]) == whole, cut
    draw = random.Random(text)
    for _ in range(num_random):
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randint(2, 8)))
        edges = [0, *cuts, len(text)]
        assert parse(make, *(text[a:b] for a, b in itertools.pairwise(edges))) == whole, cuts
    return whole


def check_cuts(make, text):
    """Check that every prefix of a text is parsed alike in one piece and by character.

    Later text takes back nothing that was reported, and without calls no text is lost.
    """
    parser = make()
    so_far = []
    for end in range(len(text) + 1):
        cut = parse(make, text[:end])
        if not cut.calls:
            assert cut.content == text[:end]
        assert [call.id for call in cut.calls] == [f"call_{i}" for i in range(len(cut.calls))]
        begun = fold(so_far)
        assert (cut.content or "").startswith(begun.content or "")
        for before, after in zip(begun.calls, cut.calls, strict=True):
            assert after.arguments.startswith(before.arguments)
        if end < len(text):
            so_far += parser.feed(text[end])


def check_case(family, case):
    def make():
        return calls_parser(family)

    message = check_splits(make, case.text)
    assert message.content == case.content
    assert [(call.name, call.arguments) for call in message.calls] == list(case.calls)
    check_cuts(make, case.text)
    assert (
        parse(lambda: calls_parser(family, parallel=False), *case.text).calls == (message.calls[:1])
    )


def check_leaks(family, case):
    """Check that a well-formed text gives JSON arguments, and never markup as content."""
    for _, arguments in case.calls:
        assert isinstance(json.loads(arguments), dict)
    parser = calls_parser(family)
    shown = ""
    for character in case.text:
        shown += "".join(d.text for d in parser.feed(character) if isinstance(d, Content))
        assert (case.content or "").startswith(shown)
    assert not any(marker in shown for marker in parser.markers)
