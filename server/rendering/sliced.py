"""Long lists as JSON, made slice by slice.

One call of the encoder holds the interpreter lock until it returns, which would stop the event
loop for as long. Between slices other threads run, and only one slice exists as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

SLICE = 512
"""Values that are encoded in one call: items, times the weight of each."""

_encoder = msgspec.json.Encoder()


def encoded_list(items: Iterable[object], *, weight: int = 1) -> Any:
    """Encode a list of any length. The result stands for the list in what is encoded next.

    ``weight`` is about how many values an item has; SLICE: each is encoded alone.
    """
    rest, size = iter(items), max(1, SLICE // weight)
    slices = iter(lambda: list(islice(rest, size)), [])
    parts = [b"["]
    for part in slices:
        parts += [_encoder.encode(part)[1:-1], b","]
    if len(parts) > 1:
        parts.pop()
    parts.append(b"]")
    return msgspec.Raw(b"".join(parts))  # one copy: it may be long


def list_or_encoded(length: int, items: Iterable[object], *, weight: int = 1) -> Any:
    """Return ``items``, ``length`` of them, as a list if that is short, else encoded."""
    is_short = length * weight <= SLICE
    return list(items) if is_short else encoded_list(items, weight=weight)


def encoded_ids(token_ids: Sequence[int]) -> Any:
    """Token ids, encoded if there are many."""
    return list_or_encoded(len(token_ids), token_ids)
