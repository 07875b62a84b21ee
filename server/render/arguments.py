"""arguments_object: a call's arguments for APIs that send them as an object, not as text."""

from __future__ import annotations

from typing import Any

import msgspec


def arguments_object(text: str) -> Any:
    """The arguments as they were generated; those that the limit of tokens has cut become {}."""
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        is_object = False
    return msgspec.Raw(text.encode() if is_object else b"{}")
