"""Read the header of a GGUF file: metadata, and where its tensors are.

A file may come from anyone. Every length, count and offset is checked against the file's size
before anything is read or allocated. Format: ggml's ``docs/gguf.md``, versions 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np

from core.contract.errors import ModelLoadError
from core.gguf.blocks import BLOCK_TYPES, OTHER_TYPES, BlockType, Bytes
from core.gguf.names import MAGIC
from core.gguf.strings import Strings, starts_of

_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_MAX_NAME = 1024
"""Bytes of a key or of the name of a tensor."""

_STRING, _ARRAY = 8, 9
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
"""Types of numbers by their code in the file."""

Value: TypeAlias = "bool | int | float | str | np.ndarray | Strings"
"""A value of the metadata. An array of numbers is copied; Strings read the file when iterated."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor: its shape, last dimension contiguous, and where its bytes are in the file."""

    name: str
    shape: tuple[int, ...]
    type: BlockType
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """The metadata by key and the tensors by name; both come before the data in a file."""

    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read_header(data: Bytes) -> Header:
    """Read the header of a whole file. Raises ModelLoadError that says what is wrong."""
    cursor = _Cursor(data)
    if cursor.take(4) != MAGIC:
        raise ModelLoadError("it does not begin with GGUF")
    version = cursor.integer("<I", 4)
    if version & 0xFFFF == 0 and version:
        raise ModelLoadError("it is in big-endian byte order, which is not supported")
    if version not in _VERSIONS:
        raise ModelLoadError(f"it has version {version} of the format; versions 2 and 3 are known")
    num_tensors, num_keys = cursor.integer("<Q", 8), cursor.integer("<Q", 8)
    cursor.check_count(num_keys, 13, "keys")
    metadata: dict[str, Value] = {}
    for _ in range(num_keys):
        key = cursor.name("a key")
        if key in metadata:
            raise ModelLoadError(f"the key {key} occurs twice")
        metadata[key] = cursor.value(key)
    cursor.check_count(num_tensors, 32, "tensors")
    entries = [_entry(cursor) for _ in range(num_tensors)]
    alignment = _alignment(metadata)
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in entries:
        if name in tensors:
            raise ModelLoadError(f"the tensor {name} occurs twice")
        tensors[name] = _placed(name, shape, kind, offset, (data_start, alignment, len(data)))
    _check_apart(tensors.values())
    return Header(metadata, tensors)


class _Cursor:
    """A position in a file. Everything it reads lies inside the file, or it raises."""

    def __init__(self, data: Bytes) -> None:
        self._data = memoryview(data)  # type: ignore[arg-type]
        self.at = 0

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        if count > len(self._data) - self.at:
            raise ModelLoadError(f"it ends within its header, at byte {len(self._data)}")
        self.at += count
        return self._data[self.at - count : self.at]

    def integer(self, form: str, size: int) -> int:
        value: int = struct.unpack(form, self.take(size))[0]
        return value

    def check_count(self, count: int, least_nbytes: int, what: str) -> None:
        """Refuse a count that the rest of the file has no room for."""
        if count * least_nbytes > len(self._data) - self.at:
            raise ModelLoadError(f"it claims {count} {what}, more than it has room for")

    def text(self, what: str) -> str:
        length = self.integer("<Q", 8)
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise ModelLoadError(f"{what} is not UTF-8") from error

    def name(self, what: str) -> str:
        """A key, or the name of a tensor."""
        start = self.at
        name = self.text(what)
        if not name or self.at - start > 8 + _MAX_NAME:
            raise ModelLoadError(f"{what} has {self.at - start - 8} bytes")
        return name

    def value(self, key: str) -> Value:
        code = self.integer("<I", 4)
        if code == _STRING:
            return self.text(key)
        if code == _ARRAY:
            return self._array(key)
        return self._numbers(code, 1, key)[0].item()  # type: ignore[no-any-return]

    def _array(self, key: str) -> Value:
        code, count = self.integer("<I", 4), self.integer("<Q", 8)
        if code != _STRING:
            return self._numbers(code, count, key)
        self.check_count(count, 8, f"strings in {key}")
        starts = starts_of(self._data, self.at, count)
        if starts is None:
            raise ModelLoadError(f"it ends within {key}")
        self.at = starts[-1]
        return Strings(self._data, key, starts)

    def _numbers(self, code: int, count: int, key: str) -> np.ndarray:
        dtype = _NUMBERS.get(code)
        if dtype is None:
            raise ModelLoadError(f"{key} has values of the unknown type {code}")
        self.check_count(count, dtype.itemsize, f"numbers in {key}")
        numbers: np.ndarray = np.frombuffer(bytes(self.take(count * dtype.itemsize)), dtype)
        return numbers


_Entry: TypeAlias = tuple[str, tuple[int, ...], BlockType, int]


def _entry(cursor: _Cursor) -> _Entry:
    """Name, shape, type and offset of a tensor."""
    name = cursor.name("the name of a tensor")
    num_dimensions = cursor.integer("<I", 4)
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ModelLoadError(f"the tensor {name} has {num_dimensions} dimensions")
    shape = tuple(cursor.integer("<Q", 8) for _ in range(num_dimensions))[::-1]
    code, offset = cursor.integer("<I", 4), cursor.integer("<Q", 8)
    kind = BLOCK_TYPES.get(code)
    if kind is None:
        known = ", ".join(kind.name for kind in BLOCK_TYPES.values())
        raise ModelLoadError(
            f"the tensor {name} is stored as {OTHER_TYPES.get(code, f'type {code}')}, which is "
            f"not supported; {known} are"
        )
    return name, shape, kind, offset


def _placed(
    name: str,
    shape: tuple[int, ...],
    kind: BlockType,
    offset: int,
    file: tuple[int, int, int],
) -> TensorInfo:
    """Check a tensor's shape and place; ``file`` is the start of data, alignment and size."""
    data_start, alignment, size = file
    if 0 in shape:
        raise ModelLoadError(f"the tensor {name} has the shape {shape}")
    if shape[-1] % kind.size:
        raise ModelLoadError(
            f"the tensor {name} has rows of {shape[-1]} values, which do not divide into blocks "
            f"of {kind.size} ({kind.name})"
        )
    nbytes = prod(shape) // kind.size * kind.nbytes
    if offset % alignment:
        raise ModelLoadError(f"the tensor {name} begins at {offset}, not aligned to {alignment}")
    if data_start + offset + nbytes > size:
        raise ModelLoadError(f"the tensor {name} ends beyond the file: it is cut off or damaged")
    return TensorInfo(name, shape, kind, data_start + offset, nbytes)


def _check_apart(tensors: Iterable[TensorInfo]) -> None:
    """Refuse tensors that share bytes."""
    for first, second in pairwise(sorted(tensors, key=lambda tensor: tensor.start)):
        if second.start < first.start + first.nbytes:
            raise ModelLoadError(f"the tensors {first.name} and {second.name} overlap")


def _alignment(metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(value, int) or not 8 <= value <= 1 << 20 or value & (value - 1):
        raise ModelLoadError(f"general.alignment is {value!r}, not a power of two from 8 on")
    return value
