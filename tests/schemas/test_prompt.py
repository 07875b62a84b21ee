"""The forms of a completion's prompt."""

import msgspec
import pytest

from tests.support.each import each


@each(
    "prompt",
    ["", "x", [], ["x", "y"], [""], [1, 2], [[1, 2], [3]], [[]], [1, "mixed"], [-1], None],
)
def test_every_form_is_decoded_unchanged(completion, prompt):
    assert completion(prompt=prompt).prompt == prompt


@each(
    ("prompt", "path"),
    [
        ({}, ""),
        (5, ""),
        (True, ""),
        ([None], "[0]"),
        ([1.5], "[0]"),
        ([{}], "[0]"),
        ([[1], ["x"]], "[1][0]"),
        ([[1.0]], "[0][0]"),
        ([[True]], "[0][0]"),
    ],
)
def test_other_values_are_refused(completion, prompt, path):
    with pytest.raises(msgspec.ValidationError) as caught:
        completion(prompt=prompt)
    assert str(caught.value).endswith(f" - at `$.prompt{path}`")
