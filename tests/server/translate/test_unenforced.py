import msgspec

from schemas.chat import ChatCompletionRequest
from server.translate.unenforced import unenforced_keywords
from tests.support.each import each

UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


def tool(name, parameters, **fields):
    return {"type": "function", "function": {"name": name, "parameters": parameters} | fields}


def json_schema(**spec):
    return {"type": "json_schema", "json_schema": {"name": "n"} | spec}


def unenforced(**fields):
    body = {"messages": [{"role": "user", "content": "hi"}]} | fields
    request = msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)
    return unenforced_keywords(request)


@each(
    ("fields", "names"),
    [
        ({}, ()),
        ({"tools": [tool("f", UNIQUE)]}, ("tools.f.uniqueItems",)),
        ({"tools": [tool("f", UNIQUE, strict=False)]}, ("tools.f.uniqueItems",)),
        ({"tools": [tool("f", UNIQUE, strict=True)]}, ()),
        ({"tools": [tool("f", UNIQUE)], "tool_choice": "none"}, ()),
        (
            {"tools": [tool("f", {}), tool("a.b", {"if": {}, "not": {}})]},
            ("tools.a.b.if", "tools.a.b.not"),
        ),
        ({"tools": [tool("f", {"properties": 5, "not": {}})]}, ()),
        (
            {"response_format": json_schema(schema=UNIQUE, strict=False)},
            ("response_format.uniqueItems",),
        ),
        ({"response_format": json_schema(schema=UNIQUE, strict=True)}, ()),
        ({"response_format": json_schema(schema=UNIQUE)}, ()),
        ({"response_format": json_schema(strict=False)}, ()),
        ({"response_format": {"type": "json_object"}}, ()),
    ],
)
def test_names(fields, names):
    assert unenforced(**fields) == names
