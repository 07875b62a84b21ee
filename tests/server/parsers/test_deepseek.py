import pytest

from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "deepseek"
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001


def fenced(name, arguments):
    return f"{CALL}function{SEPARATOR}{name}\n```json\n{arguments}\n```{CALL_END}"


def bare(name, arguments):
    return f"{CALL}{name}{SEPARATOR}{arguments}{CALL_END}"


WEATHER = '{"city": "杭州 ``` 😀"}'
NESTED = r'{"a": {"b": "\""}}'

WELL_FORMED = [
    plain("Hello <｜ <|tool <｜tool▁call ```json"),  # noqa: RUF001
    Case(CALLS + fenced("ping", "{}") + CALLS_END, None, [("ping", "{}")]),
    Case(
        "Let me see.\n\n"
        + CALLS
        + fenced("get_weather", WEATHER)
        + "\n"
        + fenced("ping", NESTED)
        + CALLS_END,
        "Let me see.",
        [("get_weather", WEATHER), ("ping", NESTED)],
    ),
    Case(
        CALLS + bare("ping", "{}") + bare("get_weather", WEATHER) + CALLS_END,
        None,
        [("ping", "{}"), ("get_weather", WEATHER)],
    ),
    Case(bare("ping", "{}"), None, [("ping", "{}")]),
    Case(CALLS + fenced("ping", "{}"), None, [("ping", "{}")]),
]

MALFORMED = [
    plain(CALLS + CALLS_END),
    plain(CALLS + fenced("nope", '{"a": 1}') + CALLS_END),
    plain(CALL + "function" + SEPARATOR + "ping\n{}" + CALL_END),
    plain(CALL + "ping{}" + CALL_END),
    plain(fenced("ping", "5")),
    Case(
        CALLS + fenced("nope", "{}") + "\n" + fenced("ping", "{}") + CALLS_END,
        CALLS + fenced("nope", "{}"),
        [("ping", "{}")],
    ),
    Case(
        CALLS + bare("ping", '{"a": b}') + CALLS_END,
        "b}" + CALL_END + CALLS_END,
        [("ping", '{"a": ')],
    ),
    Case(CALL + "ping" + SEPARATOR + '{"a": 1', None, [("ping", '{"a": 1')]),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)
