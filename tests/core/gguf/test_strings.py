"""Arrays of strings: those found many at a time are those that are there."""

from __future__ import annotations

import random
import struct

import pytest

from core.contract.errors import ModelLoadError
from core.gguf import strings
from core.gguf.strings import Strings, starts_of


def written(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def read(parts: list[bytes], before: bytes = b"", after: bytes = b"\0" * 64) -> Strings | None:
    data = memoryview(before + written(parts) + after)
    starts = starts_of(data, len(before), len(parts))
    return None if starts is None else Strings(data, "k", starts)


def drawn(draw: random.Random, alphabet: str, longest: int) -> list[bytes]:
    """Strings of any length, some empty, over many windows and runs."""
    return [
        "".join(draw.choices(alphabet, k=draw.randint(0, longest))).encode() for _ in range(9000)
    ]


@pytest.mark.parametrize(
    ("alphabet", "longest"),
    [("abc", 9), ("aé日🙂 \n", 5), ("a\0", 12), ("\0", 9), ("a", 700)],
    ids=["short", "unicode", "zeros", "nothing else", "long"],
)
def test_strings_are_read_as_they_were_written(alphabet, longest):
    draw = random.Random(0)
    for before in (b"", b"\0" * 9, draw.randbytes(13)):
        parts = drawn(draw, alphabet, longest)
        found = read(parts, before)
        assert found is not None
        assert list(found) == [part.decode() for part in parts]
        assert [found[0], *found[-3:]] == [part.decode() for part in (parts[0], *parts[-3:])]


def test_the_end_is_where_the_last_string_ends():
    parts = [b"ab", b"", b"c" * 300]
    for count in range(4):
        starts = starts_of(memoryview(written(parts) + b"\0" * 99), 0, count)
        assert starts is not None
        assert starts[-1] == len(written(parts[:count]))


def test_strings_that_end_beyond_the_data_are_not_there():
    parts = [b"ab"] * 3000
    whole = written(parts)
    assert starts_of(memoryview(whole), 0, len(parts)) is not None
    for cut in (1, 2, 3, 9, 11, len(whole) - 5):
        assert starts_of(memoryview(whole[:-cut]), 0, len(parts)) is None
    huge = whole[:-10] + b"\xff" * 8 + b"ab"
    assert starts_of(memoryview(huge), 0, len(parts)) is None


def test_a_string_that_is_not_utf_8_is_refused_with_its_key():
    found = read([b"ab"] * 5000 + [b"\xc3"] + [b"\xa9"])
    assert found is not None
    with pytest.raises(ModelLoadError, match="a string of k is not UTF-8"):
        list(found)


def test_short_strings_are_found_and_decoded_together(monkeypatch):
    """Which is what saves time: none is taken by itself."""
    monkeypatch.setattr(Strings, "_text", None)
    found = read([b"token %d" % i for i in range(20000)])
    assert found is not None
    assert list(found)[19999] == "token 19999"
    window = memoryview(written([b"ab"] * 100))
    assert list(strings._found(window)) == list(range(0, 1000, 10))


def test_long_strings_are_taken_one_by_one(monkeypatch):
    """Together, their copies would take a multiple of their bytes at once."""
    monkeypatch.setattr(strings, "_MOST_BYTES", 5000)
    parts = [b"a" * 1000, b"b" * 2000, b"c" * 3000]
    found = read(parts)
    assert found is not None
    assert strings._decoded(found._data, found._starts) is None
    assert list(found) == [part.decode() for part in parts]
