"""item_list: a page of the input items of a stored response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from core.contract.errors import InvalidRequest
from schemas.responses_items import ItemList


class _Identified(msgspec.Struct):
    id: str


_ids = msgspec.json.Decoder(_Identified)


def item_list(
    items: Sequence[bytes], *, order: Literal["asc", "desc"], after: str | None, limit: int
) -> bytes:
    """The first ``limit`` items behind the one with the id ``after``. Raises InvalidRequest."""
    ordered = items if order == "asc" else items[::-1]
    ids = [_ids.decode(item).id for item in ordered]
    if after is not None:
        if after not in ids:
            raise InvalidRequest(
                f"There is no input item with id '{after[:64]}'.",
                param="after",
                code="invalid_value",
            )
        start = ids.index(after) + 1
        ids, ordered = ids[start:], ordered[start:]
    shown: list[Any] = [msgspec.Raw(item) for item in ordered[:limit]]
    return msgspec.json.encode(
        ItemList(
            data=shown,
            first_id=ids[0] if ids else None,
            last_id=ids[len(shown) - 1] if ids else None,
            has_more=len(ids) > limit,
        )
    )
