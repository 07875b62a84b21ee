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
"""Items that are encoded in one call."""

_encoder = msgspec.json.Encoder()


def encoded_list(items: Iterable[object]) -> Any:
    """Encode a list of any length. The result stands for the list in what is encoded next."""
    rest = iter(items)
    slices = iter(lambda: list(islice(rest, SLICE)), [])
    return msgspec.Raw(b"[" + b",".join([_encoder.encode(part)[1:-1] for part in slices]) + b"]")


def list_or_encoded(length: int, items: Iterable[object]) -> Any:
    """Return ``items``, ``length`` of them, as a list if that is short, else encoded."""
    return list(items) if length <= SLICE else encoded_list(items)


def encoded_ids(token_ids: Sequence[int]) -> Any:
    """Token ids, encoded if there are many."""
    return list_or_encoded(len(token_ids), token_ids)
