import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.parsers import properties
from tests.server.parsers.properties import Case, plain

FAMILY = "pythonic"

WELL_FORMED = [
    plain("Hello [world](https://example.org) [1] [x, y] ["),
    plain("[ping] [ping, ping] [pingping()] get_weather(city='x')"),
    plain("items[ping] = [f(x) for x in y]"),
    plain("<|python_sta"),
    plain("[]"),
    Case("[ping()]", None, [("ping", "{}")]),
    Case(
        "Well:\n[ get_weather( city = 'Paris' , days=3 ) , ping( ) ]\n",
        "Well:",
        [("get_weather", '{"city":"Paris","days":3}'), ("ping", "{}")],
    ),
    Case(
        "[ping(a=True, b=None, c=false, d=null, e=-1.5e3, f=+5, g=1_000, h=0x1f, i=1.)]",
        None,
        [
            (
                "ping",
                '{"a":true,"b":null,"c":false,"d":null,"e":-1.5e3,"f":5,"g":1000,"h":31,"i":1.0}',
            )
        ],
    ),
    Case(
        "[ping(a=[1, [2,], (3, 4)], b={'x': {\"y\": []}, 'z': ()}, c={},)]",
        None,
        [("ping", '{"a":[1,[2],[3,4]],"b":{"x":{"y":[]},"z":[]},"c":{}}')],
    ),
    Case(
        r"""[ping(a="it's", b='say "x" )]', c='\n\t\x41\u00e9\U0001f600\ud83d\ude00\101\'\d\/')]""",
        None,
        [("ping", '{"a":"it\'s","b":"say \\"x\\" )]","c":"\\n\\tAé😀😀A\'\\\\d/"}')],
    ),
    Case(
        '[ping(a="""two "quoted"\nlines""", b=\'\', c=\'\'\'x\'\'\', d="a\\\nb")]',
        None,
        [("ping", '{"a":"two \\"quoted\\"\\nlines","b":"","c":"x","d":"ab"}')],
    ),
    Case("<|python_start|>[ping()]<|python_end|>", None, [("ping", "{}")]),
    Case("[ping()] Done.", "Done.", [("ping", "{}")]),
    Case('[write-file_2(名="ж😀")]', None, [("write-file_2", '{"名":"ж😀"}')]),
]

MALFORMED = [
    plain("[nope(a='[ping()]')]"),
    plain("[nope(), 5]"),
    plain("[ping(1)]"),
    plain("[ping(city)]"),
    plain("[ping(a=b)]"),
    plain("[ping(a=nan)]"),
    plain("[ping(a=1-2)]"),
    plain("[ping(a={1: 2})]"),
    plain("[ping(a={'x' 2})]"),
    plain("[ping(a=[1 2])]"),
    plain(r"[ping(a='\ud83d')]"),
    plain(r"[ping(a='\U99999999')]"),
    plain(f"[ping(a={'[' * 70})]"),
    plain(f"[{'a' * 300}()]"),
    plain("[ping(a='x"),
    plain("<|python_tag|>print(1)"),
    Case("[nope(), ping()]", "[nope(),", [("ping", "{}")]),
    Case("[ping(), nope(a=1)]", "nope(a=1)]", [("ping", "{}")]),
    Case("[ping(), 5]", "5]", [("ping", "{}")]),
    Case("[ping()", None, [("ping", "{}")]),
    Case("[ping(), ", None, [("ping", "{}")]),
    Case("[ping(a=1, b=c)]", ", b=c)]", [("ping", '{"a":1')]),
    Case("[ping(a=1, a=2)]", ", a=2)]", [("ping", '{"a":1')]),
    Case("[ping(a=1 b=2)]", "b=2)]", [("ping", '{"a":1')]),
    Case("[ping(a=1, b='x", None, [("ping", '{"a":1')]),
]


@pytest.mark.parametrize("case", [*WELL_FORMED, *MALFORMED], ids=lambda case: case.text)
def test_a_text_is_parsed_alike_however_it_is_cut(case):
    properties.check_case(FAMILY, case)


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: case.text)
def test_markup_is_never_content(case):
    properties.check_leaks(FAMILY, case)


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    arguments=st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), literals, max_size=3)
)
@settings(max_examples=50, deadline=None)
def test_every_literal_is_returned_as_json(arguments):
    text = f"[ping({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"

    def make():
        return properties.calls_parser(FAMILY)

    message = properties.parse(make, text)
    (call,) = message.calls
    assert json.loads(call.arguments) == arguments
    assert call.arguments == json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    assert properties.parse(make, *text) == message
