import json

from hypothesis import given, settings
from hypothesis import strategies as st

from server.parsers.text.json_scan import MAX_DEPTH, JsonScanner, Scan
from tests.support.each import each

VALID = [
    "{}",
    "[]",
    ' {"a": [1, 2.5, -0, 1e5, 1E-5, 0.5e+10], "b": {"c": null}} ',
    '"\\u00e9\\n\\"\\\\\\/"',
    "[true,false,null]",
    "[[[]], {}, [{}]]",
    "\t\r\n[ ]",
    "true",
]
MALFORMED = [
    ("{,", 1),
    ('{"a" 1}', 5),
    ('{"a":}', 5),
    ('{"a":1,}', 7),
    ("{a", 1),
    ("[1,]", 3),
    ("[1 2]", 3),
    ("[}", 1),
    ("]", 0),
    ("tree", 2),
    ("[01]", 2),
    ("[1.]", 3),
    ("[-]", 2),
    ("[1e]", 3),
    ("[+1]", 1),
    ("[.5]", 1),
    ("[NaN]", 1),
    (r'"\x"', 2),
    (r'"\u12g4"', 5),
    ("[" * (MAX_DEPTH + 1), MAX_DEPTH),
]


def scan(pieces, **options):
    scanner = JsonScanner(**options)
    taken = ""
    size = 0
    for piece in pieces:
        end, text = scanner.feed(piece)
        size += end
        taken += text
        if scanner.state is not Scan.RUNNING:
            break
    return scanner.state, size, taken


@each("text", VALID)
def test_a_valid_value(text):
    value = text.rstrip()
    assert scan([text]) == scan(text) == (Scan.DONE, len(value), value)
    assert scan([value + "}"]) == (Scan.DONE, len(value), value)


@each(("text", "place"), MALFORMED)
def test_a_malformed_value_ends_at_the_wrong_character(text, place):
    assert scan([text]) == scan(text) == (Scan.MALFORMED, place, text[:place])


@each(
    ("text", "state"),
    [
        ("12", Scan.DONE),
        ("-0.5e3", Scan.DONE),
        ("1.", Scan.RUNNING),
        ("-", Scan.RUNNING),
        ("", Scan.RUNNING),
        ("[1", Scan.RUNNING),
        ('"a', Scan.RUNNING),
    ],
)
def test_a_bare_number_is_done_at_the_end_of_the_text(text, state):
    scanner = JsonScanner()
    assert scanner.feed(text) == (len(text), text)
    assert scanner.state is Scan.RUNNING
    assert scanner.end() is state


def test_a_number_ends_before_the_next_character():
    assert scan(["12,"]) == scan("12,") == (Scan.DONE, 2, "12")


def test_only_object_refuses_other_values():
    assert scan([" {}"], only_object=True) == (Scan.DONE, 3, " {}")
    assert scan([" []"], only_object=True) == (Scan.MALFORMED, 1, " ")


def test_control_characters_in_strings_are_escaped():
    text = '{\n"a\n": "\t\x00b\x1f\n"}'
    expected = '{\n"a\\n": "\\t\\u0000b\\u001f\\n"}'
    assert scan([text]) == scan(text) == (Scan.DONE, len(text), expected)


def test_scan_begins_at_the_start_position():
    assert JsonScanner().feed("xx[1] ", 2) == (5, "[1]")


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    noise=st.integers(0, 200),
    put=st.sampled_from('"\\{}[],:0.e-tx '),
)
@settings(max_examples=100, deadline=None)
def test_scan_accepts_what_the_standard_library_accepts(value, noise, put):
    text = json.dumps(value)
    text = text[:noise] + put + text[noise:]
    scanner = JsonScanner()
    end, _ = scanner.feed(text)
    valid = scanner.end() is Scan.DONE and not text[end:].strip()
    try:
        # The library accepts NaN and Infinity.
        json.loads(text, parse_constant=int)
    except ValueError:
        assert not valid
    else:
        assert valid
