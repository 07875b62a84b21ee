"""check_nesting: refuses JSON that is nested too deeply, before anything recurses into it."""

from __future__ import annotations

from typing import Any

import msgspec

from core.contract.errors import InvalidRequest
from schemas.limits import MAX_DEPTH, NESTED_FIELDS


def check_nesting(request: msgspec.Struct) -> None:
    """Raise InvalidRequest naming the field. The depth is found without recursion."""
    for name in NESTED_FIELDS:
        value = getattr(request, name, None)
        if value is not None and (depth := _depth(value)) > MAX_DEPTH:
            raise InvalidRequest(
                f"'{name}' is nested {depth} levels deep; the limit is {MAX_DEPTH}.",
                param=name,
                code="invalid_value",
            )


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
