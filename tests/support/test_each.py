import inspect

import pytest

from tests.support.each import each


def test_every_case_runs_with_the_fixtures():
    seen = []

    @each("a", [1, 2])
    @each(("b", "c"), [(3, 4), (5, 6)])
    def case(fixture, a, b, c):
        seen.append((fixture, a, b, c))

    assert list(inspect.signature(case).parameters) == ["fixture"]
    case(fixture="f")
    assert seen == [("f", 1, 3, 4), ("f", 1, 5, 6), ("f", 2, 3, 4), ("f", 2, 5, 6)]


def test_a_failure_names_its_case():
    @each("number", [1, 0, 2])
    def case(number):
        assert number

    with pytest.raises(AssertionError) as caught:
        case()
    assert caught.value.__notes__ == ["case: {'number': 0}"]
