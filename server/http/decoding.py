"""decode_request: the JSON of a body to a request, within the limits of ``schemas.limits``.

Unknown fields of a request, and of objects in it that forbid them, are left out and named; unknown
keys of other nested objects are left out silently.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import Raw

from core.contract.errors import InvalidRequest
from schemas.limits import (
    DEFAULT_FIELD_BYTES,
    MAX_COLONS,
    MAX_COMMAS,
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_KEYS,
    NESTED_FIELDS,
    field_bytes,
)
from server.http.errors import APIError, invalid_body
from server.http.ignored_fields import MAX_NAME_LENGTH
from server.http.loose_values import strict_form

BASE = 4096  # bytes of a request without its fields' values
CONTAINER = 200  # bytes of a list or object, with one value that no comma counts
KEY = 112  # bytes of a key with its part of a table, which may have grown just now
VALUE = 80  # bytes of a short text or a number, and of its place in a list
WIDEST = 4  # bytes of a character, if a text has one outside of ASCII


class Punctuation:
    """Characters of a JSON body that say how many values it has. Those inside of texts count."""

    def __init__(self, body: bytes) -> None:
        self.num_containers = body.count(b"[") + body.count(b"{")
        self.num_colons = body.count(b":")
        self.num_commas = body.count(b",")
        self.num_keys = min(self.num_colons, body.count(b'"') // 2)  # the most that there may be


def decoded_size(body: bytes, marks: Punctuation) -> int:
    """Bytes that the body's objects take at most, from its bytes alone."""
    may_be_wide = not body.isascii() or (b"\\" in body and b"\\u" in body)
    return (
        BASE
        + (WIDEST if may_be_wide else 1) * len(body)
        + CONTAINER * marks.num_containers
        + KEY * marks.num_keys
        + VALUE * marks.num_commas
    )


MAX_SCANNED = 3 * MAX_CONTAINERS
"""Lists and objects of a body that is scanned before it is refused for having too many of them. It
may be nested too deeply, which is a 400 (C-097)."""

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(
    r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$\.(?P<field>\w+)`)?", re.DOTALL
)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """A request, its fields that the API does not have (``options.x``), and its size."""

    request: T
    ignored: tuple[str, ...] = ()
    size: int = 0  # bytes that the request takes at most


def decode_request(body: bytes, type_: type[T], *, is_strict: bool = False) -> Decoded[T]:
    """Decode a body. ``is_strict`` refuses unknown fields. Any thread. Raises APIError.

    A byte order mark in front is ignored, as RFC 8259, section 8.1, allows.
    """
    body = body.removeprefix(BOM_UTF8)
    marks = Punctuation(body)
    if len(body) > DEFAULT_FIELD_BYTES:
        _check_size(body, marks, type_)
    ignored: tuple[str, ...] = ()
    try:
        with _without_collections(body):
            try:
                request = _decode(body, type_)
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN.fullmatch(str(error))
                if unknown is None:
                    raise
                if is_strict or marks.num_colons > MAX_COLONS:
                    raise _unknown_field(unknown) from None
                known, ignored = _known(body, type_)
                request = _decode(known, type_)
    except _ERRORS as error:
        raise invalid_body(error) from None
    return Decoded(request, ignored, decoded_size(body, marks))


def _unknown_field(found: re.Match[str]) -> APIError:
    path = [found["field"]] if found["field"] else []
    name = ".".join([*path, found["name"]])[:MAX_NAME_LENGTH]
    return APIError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def _decode(body: bytes, type_: type[T]) -> T:
    """Decode strictly; if that fails, once more without loose values. Raises msgspec's errors."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        strict = None if _UNKNOWN.fullmatch(str(error)) else strict_form(body, type_)
        if strict is None:
            raise
    return msgspec.json.decode(strict, type=type_)


def _known(body: bytes | Raw, type_: type[msgspec.Struct]) -> tuple[bytes, tuple[str, ...]]:
    """The object without its unknown fields, and their names."""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    known = {name: fields.pop(name) for name in type_.__struct_fields__ if name in fields}
    ignored = list(fields)
    for name, nested in _closed_fields(type_).items():
        if name in known and bytes(memoryview(known[name])[:1]) == b"{":
            inner, names = _known(known[name], nested)
            known[name] = Raw(inner)
            ignored += [f"{name}.{field}" for field in names]
    return msgspec.json.encode(known), tuple(ignored)


@functools.cache
def _closed_fields(type_: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Fields with objects that forbid unknown fields too."""
    return {
        field.name: option
        for field in msgspec.structs.fields(type_)
        for option in (field.type, *get_args(field.type))
        if isinstance(option, type)
        and issubclass(option, msgspec.Struct)
        and option.__struct_config__.forbid_unknown_fields
    }


def _check_size(body: bytes, marks: Punctuation, type_: type[msgspec.Struct]) -> None:
    """Refuse a body with too many values or a field with too many bytes."""
    _check_count("values", marks.num_commas, MAX_COMMAS)
    _check_count("keys", marks.num_keys, MAX_KEYS)
    if marks.num_containers > MAX_SCANNED:
        _check_count("lists and objects", marks.num_containers, MAX_CONTAINERS)
    try:
        fields = msgspec.json.decode(body, type=_raw_fields(type_))
    except _ERRORS:
        return  # the decoder of the request says what is wrong
    _check_count("lists and objects", marks.num_containers, MAX_CONTAINERS)
    for name in type_.__struct_fields__:
        value, most_bytes = getattr(fields, name), field_bytes(name)
        if value is None or most_bytes is None:
            continue
        size = memoryview(value).nbytes
        if size > most_bytes:
            message = f"Invalid '{name}': it has {size} bytes; the limit is {most_bytes}."
            raise APIError(413, message, param=name, code="request_too_large")


def _check_count(what: str, found: int, most: int) -> None:
    if found > most:
        message = f"The body has {found} {what}, counted by their punctuation; the limit is {most}."
        raise APIError(413, message, code="request_too_large")


@functools.cache
def _raw_fields(type_: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A Struct with the same fields, whose values are not decoded; None: it is not given."""
    fields = [(name, Raw, None) for name in type_.__struct_fields__]
    return msgspec.defstruct(f"Raw{type_.__name__}", fields)


@contextlib.contextmanager
def _without_collections(body: bytes) -> Iterator[None]:
    """Do not search for garbage while a large body becomes objects: all of them are in use."""
    if len(body) <= DEFAULT_FIELD_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def check_nesting(request: msgspec.Struct) -> None:
    """Refuse JSON that is nested too deeply, before anything recurses into it.

    Raises InvalidRequest naming the field.
    """
    for name in NESTED_FIELDS:
        value = getattr(request, name, None)
        if value is not None and (depth := _depth(value)) > MAX_DEPTH:
            message = f"'{name}' is nested {depth} levels deep; the limit is {MAX_DEPTH}."
            raise InvalidRequest(message, param=name, code="invalid_value")


def _depth(value: Any) -> int:
    """Levels of lists and objects."""
    depth, level = 0, [value]
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
    return depth


def _children(value: Any) -> list[Any]:
    match value:
        case dict():
            return list(value.values()) or [None]
        case list():
            return value or [None]
        case msgspec.Struct():
            return [getattr(value, name) for name in value.__struct_fields__]
        case _:
            return []
