"""Null means "not given", zero is a value, unknown top-level keys are named; for all Structs."""

import msgspec
import pytest
from msgspec import inspect


def alternatives(kind):
    """The member types of a possibly optional, possibly annotated type."""
    match kind:
        case inspect.UnionType(types=types):
            return [member for one in types for member in alternatives(one)]
        case inspect.Metadata(type=inner):
            return alternatives(inner)
        case _:
            return [kind]


def empty_value(kind):
    """The zero of a type, or None if the type has none."""
    match kind:
        case inspect.IntType(ge=low, gt=None) | inspect.FloatType(ge=low, gt=None):
            return 0 if low is None or low <= 0 else None
        case inspect.BoolType():
            return False
        case inspect.StrType(min_length=None, pattern=None):
            return ""
        case inspect.ListType(min_length=None):
            return []
        case inspect.DictType(min_length=None):
            return {}
        case _:
            return None


def test_optional_fields_default_to_none_and_accept_null(request_struct):
    for field in inspect.type_info(request_struct).fields:
        if not field.required:
            assert field.default is None, field.name
            members = alternatives(field.type)
            kinds = inspect.NoneType | inspect.AnyType
            assert any(isinstance(one, kinds) for one in members), field.name


def test_null_equals_a_missing_field(request_type, body):
    absent = msgspec.convert(body, request_type)
    optional = [field.name for field in inspect.type_info(request_type).fields]
    nulls = dict.fromkeys(optional) | body
    assert len(nulls) > len(body)
    assert msgspec.json.decode(msgspec.json.encode(nulls), type=request_type) == absent
    assert msgspec.convert(nulls, request_type) == absent


def test_zero_is_a_value(request_type, body):
    tried = 0
    for field in inspect.type_info(request_type).fields:
        for kind in alternatives(field.type):
            if field.required or (zero := empty_value(kind)) is None:
                continue
            given = msgspec.json.encode(body | {field.name: zero})
            value = getattr(msgspec.json.decode(given, type=request_type), field.name)
            assert value == zero, field.name
            assert value is not None
            tried += 1
    assert tried


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0), ("seed", 0), ("top_logprobs", 0), ("top_k", 0), ("min_tokens", 0)],
)
def test_zeros_in_a_chat_request(chat, field, value):
    assert getattr(chat(**{field: value}), field) == value


@pytest.mark.parametrize("field", ["max_tokens", "logprobs", "best_of"])
def test_zeros_in_a_completion_request(completion, field):
    assert getattr(completion(**{field: 0}), field) == 0


def test_unknown_fields_are_named(request_type, body):
    given = msgspec.json.encode(body | {"nonsense": {"deep": [1, None]}})
    with pytest.raises(msgspec.ValidationError, match=r"unknown field `nonsense`$"):
        msgspec.json.decode(given, type=request_type)


def test_unknown_keys_of_messages_and_parts_are_ignored(chat):
    noisy = {
        "role": "user",
        "type": "text",
        "cache_control": {},
        "content": [
            {"type": "text", "text": "hi", "prompt_cache_breakpoint": True},
        ],
    }
    (message,) = chat(messages=[noisy]).messages
    assert message.content[0].text == "hi"


def test_null_for_a_required_field_is_refused(chat):
    with pytest.raises(msgspec.ValidationError, match=r"got `null` - at `\$\.messages`"):
        chat(messages=None)
