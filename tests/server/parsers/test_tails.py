from server.parsers.tails import held_from
from tests.support.each import each


@each(
    ("text", "wanted", "held"),
    [
        ("", ("abc",), ""),
        ("xyz", ("abc",), ""),
        ("xa", ("abc",), "a"),
        ("xab", ("abc",), "ab"),
        ("xabc", ("abc",), ""),
        ("aab", ("aabc", "b"), "aab"),
        ("aaa", ("aab",), "aa"),
        ("x<|", ("<|a|>", "<b"), "<|"),
        ("x[", ("[", "[A]"), "["),
        ("[", ("[",), ""),
        ("\n</", ("\n</x>",), "\n</"),
        ("a\n", ("ab",), ""),
    ],
)
def test_the_longest_prefix_at_the_end_is_held(text, wanted, held):
    assert text[held_from(text, wanted) :] == held


def test_text_before_the_start_is_not_held():
    assert held_from("ab", ("abc",), 1) == 2
    assert held_from("aba", ("abc",), 1) == 2
    assert held_from("ab", ("abc",), 0) == 0
