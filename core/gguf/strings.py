"""Arrays of strings in a GGUF file: where they are, and their text.

In a file a string follows its length, an integer of 8 bytes. A vocabulary has hundreds of
thousands, so most are found and decoded many at a time: nearly all are shorter than 256 bytes, and
7 zeros are the rest of such a length. Other strings are taken one by one.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from core.contract.errors import ModelLoadError

_LENGTH = struct.Struct("<Q")

_WINDOW = 1 << 14
"""Bytes that are searched at a time."""

_RUN = 1 << 12
"""Strings that are decoded at a time."""

_MOST_BYTES = 1 << 22
"""Most bytes of strings that are decoded at a time: three times as many are held meanwhile."""


class Strings(Sequence[str]):
    """An array of strings in a file, decoded when asked for.

    String ``i`` follows its length, which is at ``starts[i]``; ``starts[-1]`` is the end of all.
    What decodes raises ModelLoadError if a string is not UTF-8.
    """

    __slots__ = ("_data", "_key", "_starts")

    def __init__(self, data: memoryview, key: str, starts: array[int]) -> None:
        self._data, self._key, self._starts = data, key, starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self._text(self._starts[i], self._starts[i + 1]) for i in places]
        return self._text(self._starts[places], self._starts[places + 1])

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _RUN):
            starts = self._starts[first : first + _RUN + 1]
            found = _decoded(self._data, starts)
            if found is None:
                found = [self._text(start, end) for start, end in pairwise(starts)]
            yield from found

    def _text(self, start: int, end: int) -> str:
        try:
            return str(self._data[start + 8 : end], "utf-8")
        except UnicodeDecodeError as error:
            raise ModelLoadError(f"a string of {self._key} is not UTF-8") from error


def starts_of(data: memoryview, at: int, count: int) -> array[int] | None:
    """Return the start of each of ``count`` strings from ``at`` on, then their end.

    None if they end beyond the data.
    """
    starts = array("q")
    last, unpack = len(data) - 8, _LENGTH.unpack_from
    while len(starts) < count:
        end = at + _WINDOW
        found = _found(data[at:end])[: count - len(starts)]
        if len(found):
            starts.frombytes((found + at).tobytes())
            at = starts.pop()
        while at < end and len(starts) < count:
            if at > last:
                return None
            starts.append(at)
            at += 8 + unpack(data, at)[0]
    if at > len(data):
        return None
    starts.append(at)
    return starts


def _found(window: memoryview) -> np.ndarray:
    """Return the starts of a window's first strings, each where the previous one ends."""
    data = np.frombuffer(window, np.uint8)
    is_zero = data == 0
    count = max(len(data) - 7, 0)
    starts = np.flatnonzero(np.logical_and.reduce([is_zero[i : i + count] for i in range(1, 8)]))
    if not len(starts) or starts[0]:
        return starts[:0]
    is_next = starts[1:] == starts[:-1] + 8 + data[starts[:-1]]
    return starts if is_next.all() else starts[: int(is_next.argmin()) + 1]


def _decoded(data: memoryview, starts: array[int]) -> list[str] | None:
    """The strings between the starts; None if they are long, or are not UTF-8 without zeros."""
    begin, count = starts[0], len(starts) - 1
    if starts[-1] - begin > _MOST_BYTES:
        return None
    joined = np.frombuffer(data[begin : starts[-1]], np.uint8).copy()
    lengths = np.array(starts[:-1]) - begin
    joined[lengths] = 0  # one byte of each length stays, and separates
    keep = np.ones(len(joined), bool)
    for i in range(1, 8):
        keep[lengths + i] = False
    try:
        found = str(joined[keep].data[1:], "utf-8").split("\0")
    except UnicodeDecodeError:
        return None
    return found if len(found) == count else None
