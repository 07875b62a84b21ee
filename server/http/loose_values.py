"""strict_form: what clients write loosely, as the types of a request want it.

- A whole number may be written as a decimal where an integer is expected: ``4.0``, ``1e1``. JSON
  Schema counts these as integers.
- An empty text or list in a field of sampling or of an output constraint is "not given", where it
  is no value of the field. Front ends send their whole panel.

Nothing else changes: not the numbers inside of schemas, arguments and metadata.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import msgspec
from msgspec import Raw
from msgspec import inspect as types

from schemas.formats import StructuredOutputs
from schemas.ollama import OllamaOptions
from schemas.sampling import SamplingFields

LONGEST = 64  # characters of a number that is looked at; an integer of 64 bits has 20 digits
_MAY_BE_EMPTY = frozenset(
    {
        *SamplingFields.__struct_fields__,
        *OllamaOptions.__struct_fields__,
        *StructuredOutputs.__struct_fields__,
    }
) - {"model", "stream", "stream_options", "user", "priority", "request_id", "rid", "cache_salt"}

_OPEN = {types.AnyType, types.RawType}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Which loose values a place in a request has."""

    is_whole: bool = False
    ignored: frozenset[bytes] = frozenset()  # empty values that mean "not given"
    items: _Kind | None = None
    fields: Mapping[str, _Kind] | None = None

    def __bool__(self) -> bool:
        return bool(self.is_whole or self.ignored or self.items or self.fields)


def strict_form(body: bytes, type_: type[msgspec.Struct]) -> bytes | None:
    """The body of a request of this type without loose values; None if it has none."""
    try:
        whole = Raw(body.strip())
        strict = _strict(whole, _kind_of_request(type_))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if strict is whole or strict is None else bytes(strict)


def _strict(value: Raw, kind: _Kind) -> Raw | None:
    """The value itself if it is not loose; None: it is not given."""
    data = memoryview(value)
    match bytes(data[:1]):
        case b"{":
            return value if not kind.fields else _strict_object(value, kind.fields)
        case b"[":
            if kind.ignored and not bytes(data[1:8]).strip(b" \t\r\n]"):
                return None if b"[]" in kind.ignored else value
            return value if not kind.items else _strict_list(value, kind.items)
        case b'"':
            return None if bytes(data[:3]) == b'""' and b'""' in kind.ignored else value
        case _:
            return _whole(value) if kind.is_whole else value


def _strict_object(value: Raw, kinds: Mapping[str, _Kind]) -> Raw:
    old = msgspec.json.decode(value, type=dict[str, Raw])
    new = {n: _strict(v, kinds[n]) if n in kinds else v for n, v in old.items()}
    if all(new[name] is item for name, item in old.items()):
        return value
    return Raw(msgspec.json.encode({n: v for n, v in new.items() if v is not None}))


def _strict_list(value: Raw, kind: _Kind) -> Raw:
    old = msgspec.json.decode(value, type=list[Raw])
    new = [_strict(item, kind) for item in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return value
    return Raw(msgspec.json.encode([item for item in new if item is not None]))


def _whole(value: Raw) -> Raw:
    text = bytes(memoryview(value)[: LONGEST + 1])
    if len(text) > LONGEST or not text.translate(None, b"-0123456789"):
        return value
    if not text[-1:].isdigit():  # null, true
        return value
    number = Decimal(text.decode())
    is_whole = number.adjusted() < LONGEST and number == number.to_integral_value()
    return Raw(b"%d" % int(number)) if is_whole else value


@functools.cache
def _kind_of_request(type_: type[msgspec.Struct]) -> _Kind:
    return _kind(types.type_info(type_), may_be_empty=False)


def _kind(type_: types.Type, *, may_be_empty: bool) -> _Kind:
    options = list(_options(type_))
    classes = {type(option) for option in options}
    if classes & _OPEN:
        return _Kind()
    items = [option.item_type for option in options if isinstance(option, types.ListType)]
    fields = {}
    for struct in options:
        for field in struct.fields if isinstance(struct, types.StructType) else ():
            is_optional = field.name in _MAY_BE_EMPTY and not field.required
            fields[field.encode_name] = _kind(field.type, may_be_empty=is_optional)
    return _Kind(
        is_whole=types.IntType in classes and types.FloatType not in classes,
        ignored=frozenset(_ignored(options)) if may_be_empty else frozenset(),
        items=_kind_of_item(items[0], may_be_empty=may_be_empty) if items else None,
        fields={name: kind for name, kind in fields.items() if kind},
    )


def _kind_of_item(type_: types.Type, *, may_be_empty: bool) -> _Kind:
    """Of a list's texts, an empty one is "not given" if it is no value of the list."""
    if may_be_empty and any(isinstance(o, types.StrType) and o.min_length for o in _options(type_)):
        return _Kind(ignored=frozenset({b'""'}))
    return _kind(type_, may_be_empty=False)


def _ignored(options: list[types.Type]) -> Iterator[bytes]:
    """The empty values that the type does not take."""
    texts = [option for option in options if isinstance(option, types.StrType)]
    words = [option.values for option in options if isinstance(option, types.LiteralType)]
    if all(text.min_length for text in texts) and not any("" in values for values in words):
        yield b'""'
    lists = [option for option in options if isinstance(option, types.ListType)]
    if all(option.min_length for option in lists):
        yield b"[]"


def _options(type_: types.Type) -> Iterator[types.Type]:
    """The members of a union, without annotations."""
    match type_:
        case types.Metadata(type=inner):
            yield from _options(inner)
        case types.UnionType(types=members):
            for member in members:
                yield from _options(member)
        case _:
            yield type_
