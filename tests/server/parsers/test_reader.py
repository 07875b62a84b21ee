from server.parsers.text.reader import Reader
from tests.support.each import each


def read_until(text, ends, start=0):
    """What a reader of this text is sure to read, and the end that it reached."""
    reader, pieces = Reader(), []
    reader.push(text)
    reader.position = start
    try:
        next(reader.until(pieces.append, *ends))
    except StopIteration as stop:
        return "".join(pieces), stop.value
    return "".join(pieces), None


@each(
    ("text", "wanted", "held"),
    [
        ("", ("abc",), ""),
        ("xyz", ("abc",), ""),
        ("xa", ("abc",), "a"),
        ("xab", ("abc",), "ab"),
        ("aab", ("aabc", "bb"), "aab"),
        ("aaa", ("aab",), "aa"),
        ("x<|", ("<|a|>", "<b"), "<|"),
        ("\n</", ("\n</x>",), "\n</"),
        ("a\n", ("ab",), ""),
    ],
)
def test_the_longest_prefix_at_the_end_is_held(text, wanted, held):
    assert read_until(text, wanted) == (text.removesuffix(held), None)


@each(
    ("text", "wanted", "expected"),
    [
        ("xabc", ("abc",), ("x", "abc")),
        ("x[", ("[", "[A]"), ("x", "[")),
        ("[", ("[",), ("", "[")),
        ("xbac", ("ac", "b"), ("x", "b")),
    ],
)
def test_reading_ends_before_the_first_end(text, wanted, expected):
    assert read_until(text, wanted) == expected


def test_text_before_the_start_is_not_held():
    assert read_until("abx", ("abc",), 1) == ("bx", None)
    assert read_until("aba", ("abc",), 1) == ("b", None)
    assert read_until("ab", ("abc",), 0) == ("", None)
