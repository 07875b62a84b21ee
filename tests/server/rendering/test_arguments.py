import msgspec
import pytest

from server.rendering.base import arguments_object


@pytest.mark.parametrize("text", ["{}", '{"b": 1, "a": [1.50]}', '{"a": 1, "a": 2}'])
def test_an_object_keeps_its_bytes(text):
    assert msgspec.json.encode(arguments_object(text)) == text.encode()


DEEP = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize("text", ["", '{"city": "Par', "[1]", "5", "null", DEEP])
def test_anything_else_becomes_an_empty_object(text):
    assert msgspec.json.encode(arguments_object(text)) == b"{}"
