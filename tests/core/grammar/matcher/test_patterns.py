"""Patterns of formats, patterns in place of others, and escapes of GBNF."""

from __future__ import annotations

import datetime as dt
import random
import re

import pytest
from pydantic import TypeAdapter

from core.contract.grammar import json_schema, lark
from core.grammar.matcher.patterns import DATES, EQUAL_PATTERNS, RAW_FORMATS
from tests.support.constrained import Decoder, refusal
from tests.support.each import each

TYPES = {"date": dt.date, "date-time": dt.datetime, "time": dt.time, "duration": dt.timedelta}


@pytest.fixture(scope="module")
def decoder():
    return Decoder()


@each("pattern", list(EQUAL_PATTERNS))
def test_a_pattern_equals_the_one_it_replaces(pattern):
    rng = random.Random(0)
    old, new = re.compile(pattern), re.compile(EQUAL_PATTERNS[pattern])
    num_matches = 0
    for _ in range(60_000):
        local = "".join(rng.choices("ab.'+-_@", k=rng.randint(0, 6)))
        domain = "".join(rng.choices("ab1-..", k=rng.randint(0, 5)))
        text = f"{local}@{domain}.{rng.choice(['org', 'a', 'x1', ''])}"
        assert bool(old.search(text)) == bool(new.search(text)), text
        num_matches += bool(old.search(text))
    assert num_matches > 1_000


@each(
    ("name", "text", "is_valid"),
    [
        ("date", "0001-01-01", True),
        ("date", "0000-10-10", False),
        ("date", "9999-12-31", True),
        ("date", "2024-02-29", True),
        ("date", "2023-02-29", False),
        ("date", "1900-02-29", False),
        ("date", "2000-02-29", True),
        ("date", "2023-04-31", False),
        ("date", "2023-13-01", False),
        ("date-time", "2020-10-10T10:10:10Z", True),
        ("date-time", "2020-10-10T10:10:10.123456789+01:00", True),
        ("date-time", "0000-10-10T10:10:10Z", False),
        ("date-time", "2020-10-10t10:10:10Z", False),
        ("date-time", "2020-10-10T10:10:10z", False),
        ("date-time", "2020-10-10T24:10:10Z", False),
        ("date-time", "2020-10-10T10:10:60Z", False),
        ("date-time", "2020-10-10T10:10:10." + "1" * 10 + "Z", False),
        ("time", "10:10:10.5Z", True),
        ("time", "10:10:10." + "1" * 10 + "Z", False),
        ("duration", "P1Y2M3DT4H5M6S", True),
        ("duration", "PT1S", True),
        ("duration", "P2W", True),
        ("duration", "P", False),
        ("duration", "P999999Y9999999M99999999DT999999H9999999M9999999S", True),
        ("duration", "P99999999W", True),
        ("duration", "P999999999D", False),
        ("duration", "P100000000W", False),
    ],
)
def test_dates_are_those_of_the_calendar(decoder, name, text, is_valid):
    assert decoder.accepts(json_schema({"type": "string", "format": name}), f'"{text}"') == is_valid
    both = {"type": "string", "format": name, "pattern": "."}
    assert decoder.accepts(json_schema(both), f'"{text}"') == is_valid
    if is_valid:
        TypeAdapter(TYPES[name]).validate_python(text)


def test_all_days_are_dates_and_others_are_not():
    pattern = re.compile(DATES["date"])
    for year in (1, 4, 100, 400, 1900, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(33):
                text = f"{year:04}-{month:02}-{day:02}"
                try:
                    dt.date(year, month, day)
                except ValueError:
                    assert not pattern.search(text), text
                else:
                    assert pattern.search(text), text


def test_what_a_model_writes_is_read_by_pydantic(decoder):
    grammar = json_schema({"type": "string", "format": "date-time"})
    texts = decoder.run(*[decoder.sequence(grammar, seed=seed) for seed in range(20)])
    for text in texts:
        TypeAdapter(dt.datetime).validate_json(text)


@each(
    ("name", "text", "is_valid"),
    [
        ("ipv4", "127.0.0.1", True),
        ("ipv4", "256.0.0.1", False),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", True),
        ("uuid", "123e4567-e89b-12d3-a456", False),
    ],
)
def test_raw_formats(name, text, is_valid):
    assert bool(re.search(RAW_FORMATS[name], text)) == is_valid


@each(
    ("source", "text", "other"),
    [
        (r"root ::= [\U0001F600-\U0001F64F]{2}", "😀🙏", "😀"),
        (r'root ::= "\U0001F600" "x"', "😀x", "x"),
        (r"root ::= [\u3041-\u3096]+", "ぁゖ", "a"),
        (r'root ::= "\u0022\u005C\u0041"', '"\\A', "A"),
        (r"root ::= [\u005B-\u005D]+", "[]", "a"),
        (r"root ::= [^\u0000-\u001F\u00E9]", "a", "é"),
        (r'root ::= "\xE9\x41"', "éA", "A"),
        (r'root ::= "\\U0001F600"', r"\U0001F600", "😀"),
    ],
)
def test_escapes_of_gbnf(decoder, source, text, other):
    assert decoder.accepts(lark(source), text)
    assert not decoder.accepts(lark(source), other)


@each("escape", [r"\uD800", r"\U00110000", r"\U0000DFFF"])
def test_an_escape_that_is_no_character_is_refused(decoder, escape):
    assert escape in refusal(decoder, lark(f'root ::= "{escape}"'))
