import re

from schemas.tools import FunctionDefinition
from server.parsers.base import (
    CallArguments,
    CallBegin,
    Content,
    Message,
    ParsedCall,
    Reasoning,
    fold,
    new_call_id,
)
from server.parsers.tool import TOOL_PARSERS

CALL = '<tool_call>{"name": "ping", "arguments": {"a": 1}}</tool_call>'


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
    assert fold(deltas) == Message(
        "z", "xy", (ParsedCall("i", "f", "{}"), ParsedCall("j", "g", ""))
    )


def test_ids():
    ids = {new_call_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", each) for each in ids)
    (begin, _) = TOOL_PARSERS["hermes"]([FunctionDefinition(name="ping")]).feed(CALL)
    assert re.fullmatch(r"call_[A-Za-z0-9]{24}", begin.id)
