import pytest

from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "mistral"
PING = '{"name": "ping", "arguments": {}}'

WELL_FORMED = [
    plain("Hello [TOOL] [TOOL_CALL] [T [TOOL_CALLS"),
    plain("[1, 2]"),
    Case(f"[TOOL_CALLS][{PING}]", None, [("ping", "{}")]),
    Case(f"[TOOL_CALLS] [ {PING} , {PING} ] ", None, [("ping", "{}"), ("ping", "{}")]),
    Case(f"I call. [TOOL_CALLS]{PING}", "I call.", [("ping", "{}")]),
    Case(
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "São [ARGS] 😀"}, "id": "a1"}]',
        None,
        [("get_weather", '{"city": "São [ARGS] 😀"}')],
    ),
    Case('[TOOL_CALLS]ping[ARGS]{"a": [1]}', None, [("ping", '{"a": [1]}')]),
    Case(
        'ok\n[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]write-file_2[CALL_ID]a1B2[ARGS]{"p": "\\""}',
        "ok",
        [("ping", "{}"), ("write-file_2", '{"p": "\\""}')],
    ),
    Case('[TOOL_CALLS]ping {"a": 1}', None, [("ping", '{"a": 1}')]),
]

MALFORMED = [
    plain("[TOOL_CALLS]"),
    plain("[TOOL_CALLS][]"),
    plain("[TOOL_CALLS]ping"),
    plain("[TOOL_CALLS]ping[ARGS]"),
    plain("[TOOL_CALLS]ping[ARGS]nothing"),
    plain('[TOOL_CALLS]nope[ARGS]{"a": "[TOOL_CALLS]ping[ARGS]{}"} rest'),
    plain('[TOOL_CALLS][{"name": "nope", "arguments": {}}'),
    Case(
        f'[TOOL_CALLS][{{"name": "nope"}}, {PING}]',
        '[TOOL_CALLS][{"name": "nope"},',
        [("ping", "{}")],
    ),
    Case(f"[TOOL_CALLS][{PING}, nope]", "nope]", [("ping", "{}")]),
    Case(f"[TOOL_CALLS][{PING}", None, [("ping", "{}")]),
    Case('[TOOL_CALLS]ping[ARGS]{"a": x}', "x}", [("ping", '{"a": ')]),
    Case('[TOOL_CALLS]ping[ARGS]{"a": 1', None, [("ping", '{"a": 1')]),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)
