import pytest

from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "llama3_json"
PING = '{"name": "ping", "parameters": {}}'

WELL_FORMED = [
    plain("Hello."),
    plain("a { b } {x} {{y}} {"),
    plain('{"city": "Paris", "nested": {"name": "ping", "parameters": {}}} and text'),
    plain('{"name": "Alice", "parameters": {"name": "ping"}}'),
    plain('{"name": "ping", "age": 3}'),
    plain('{"type": "list", "items": [{"name": "ping", "parameters": {}}]}'),
    plain("{}"),
    plain("<|python"),
    plain("f'{name}' \n{\n}"),
    Case(PING, None, [("ping", "{}")]),
    Case(
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris \\u00e9"}}',
        None,
        [("get_weather", r'{"city": "Paris \u00e9"}')],
    ),
    Case(
        f'{PING}; {{"type": "function", "name": "ping", "parameters": {{"a": "}};{{"}}}}',
        None,
        [("ping", "{}"), ("ping", '{"a": "};{"}')],
    ),
    Case(f"{PING}\n{PING}", None, [("ping", "{}"), ("ping", "{}")]),
    Case('{"name": "ping"}', None, [("ping", "{}")]),
    Case('{"name": "ping", "arguments": {"a": 1}}', None, [("ping", '{"a": 1}')]),
    Case(f"Sure:\n\n{PING}", "Sure:", [("ping", "{}")]),
    Case(f"<|python_start|>{PING}<|python_end|>", None, [("ping", "{}")]),
]

MALFORMED = [
    plain("<|python_tag|>print('hello {name}')"),
    plain('<|python_tag|>brave_search.call(query="x")'),
    plain('{"name": "ping", "parameters": 5}'),
    plain('{"name": "ping", "parameters": {'[:-1]),
    plain('{"name": "nope", "parameters": {"a": bad}}'),
    Case('{"name": "ping", "parameters": {}, "x": 1}', ', "x": 1}', [("ping", "{}")]),
    Case(f"{PING}; and", "and", [("ping", "{}")]),
    Case('{"name": "ping", "parameters": {"a": tru}}', "}}", [("ping", '{"a": tru')]),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)


def test_json_that_is_no_call_is_streamed_as_content():
    parser = properties.calls_parser(FAMILY)
    assert parser.feed('{"city"') == []
    assert [delta.text for delta in parser.feed(': "')] == ['{"city": "']
    assert [delta.text for delta in parser.feed("Paris")] == ["Paris"]
