"""Write a GGUF file: metadata and tensors. Format: ggml's ``docs/gguf.md``, version 3."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np

from core.gguf.blocks import BlockType, Bytes
from core.gguf.names import MAGIC

Writable: TypeAlias = "bool | int | float | str | np.ndarray | list[str]"
"""A value of the metadata. An integer is unsigned if it is not negative, of 32 bits if it fits."""

ALIGNMENT = 32

_VERSION = 3
_BOOL, _STRING, _ARRAY, _FLOAT32 = 7, 8, 9, 6
_INTEGERS = ((4, "<I"), (10, "<Q"), (5, "<i"), (11, "<q"))
"""Codes and forms of the types of integers, the first that fits is taken."""

_ARRAYS = {"uint8": 0, "int8": 1, "int32": 5, "float32": 6}
"""Codes of arrays of numbers by the name of numpy's type."""


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to write: its shape, last dimension contiguous, and what makes its bytes."""

    name: str
    shape: tuple[int, ...]
    type: BlockType
    make: Callable[[], Bytes]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) // self.type.size * self.type.nbytes


def write_gguf(path: Path, metadata: Mapping[str, Writable], tensors: Sequence[NewTensor]) -> None:
    """Write a file. ``path`` appears when it is complete; the bytes of one tensor exist at a time.

    Raises OSError.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(header(metadata, tensors))
            for tensor in tensors:
                data = tensor.make()
                assert data.nbytes == tensor.nbytes, (tensor.name, data.nbytes, tensor.nbytes)
                file.write(data.tobytes())
                file.write(bytes(-tensor.nbytes % ALIGNMENT))
            file.flush()
            _give_usual_mode(file.fileno())
            Path(file.name).replace(path)
        except BaseException:  # an interrupt too must leave no part of a file
            Path(file.name).unlink(missing_ok=True)
            raise


def header(metadata: Mapping[str, Writable], tensors: Sequence[NewTensor]) -> bytes:
    """Return what comes before the tensors' bytes, padded to where those begin."""
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    parts += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        parts += [_string(tensor.name), struct.pack(f"<I{len(dims)}Q", len(dims), *dims)]
        parts.append(struct.pack("<IQ", tensor.type.code, offset))
        offset += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    joined = b"".join(parts)
    return joined + bytes(-len(joined) % ALIGNMENT)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Writable) -> bytes:
    """The code of a value's type, and the value."""
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return _integer(value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _string(value)
        case list():
            head = struct.pack("<IIQ", _ARRAY, _STRING, len(value))
            return head + b"".join(map(_string, value))
        case np.ndarray():
            return struct.pack("<IIQ", _ARRAY, _ARRAYS[value.dtype.name], len(value)) + (
                value.tobytes()
            )
    raise AssertionError(value)


def _integer(value: int) -> bytes:
    for code, form in _INTEGERS:
        try:
            return struct.pack("<I", code) + struct.pack(form, value)
        except struct.error:
            continue
    raise AssertionError(value)


def _give_usual_mode(descriptor: int) -> None:
    """Give a temporary file the mode that a new file would have."""
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(descriptor, 0o666 & ~mask)
