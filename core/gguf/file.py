"""GgufFile: a GGUF file, or the parts of a split one, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.contract.errors import ModelLoadError
from core.gguf.blocks import BlockMatrix, Bytes
from core.gguf.metadata import Metadata
from core.gguf.names import SUFFIX, part_names
from core.gguf.reader import Header, TensorInfo, read_header
from core.system.checkpoint_files import foreign

_MAX_SPLITS = 9999


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a file. ``data`` is ``[nbytes]``, a view of the mapping, never written to."""

    info: TensorInfo
    data: Bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, the contiguous one last."""
        return self.info.shape

    def matrix(self) -> BlockMatrix:
        """The tensor as a matrix; further dimensions become rows, a vector one row."""
        columns = self.info.shape[-1]
        rows = self.data.reshape(-1, self.info.type.row_nbytes(columns))
        return BlockMatrix(self.info.type, len(rows), columns, rows)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A whole model: its metadata, and the tensors of all parts by name."""

    path: Path
    metadata: Metadata
    tensors: Mapping[str, Tensor]

    @classmethod
    def open(cls, path: str | Path) -> GgufFile:
        """Map a file, and the other parts if it is the first of several. Raises ModelLoadError."""
        path = Path(path)
        opened = _opened.get()
        if opened is None:
            return cls._read(path)
        if path not in opened:
            opened[path] = cls._read(path)
        return opened[path]

    @classmethod
    def _read(cls, path: Path) -> GgufFile:
        header, data = _mapped(path)
        tensors = _tensors(header, data)
        metadata = Metadata(header.metadata)
        for other in _other_parts(path, metadata):
            part, part_data = _mapped(other)
            for name, tensor in _tensors(part, part_data).items():
                if name in tensors:
                    raise ModelLoadError(f"{other} repeats the tensor {name}")
                tensors[name] = tensor
        expected = metadata.integer("split.tensors.count", len(tensors))
        if expected != len(tensors):
            raise ModelLoadError(f"the parts of {path} hold {len(tensors)} of {expected} tensors")
        return cls(path, metadata, tensors)


_opened: ContextVar[dict[Path, GgufFile] | None] = ContextVar("opened", default=None)


@contextmanager
def opened_once() -> Iterator[None]:
    """Read the header of a file once in this block and thread, however often it is opened."""
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


def _other_parts(path: Path, metadata: Metadata) -> list[Path]:
    """The parts after the first."""
    count = metadata.integer("split.count", 1, most=_MAX_SPLITS)
    if count <= 1:
        return []
    names = part_names(path.name)
    if len(names) != count:
        raise ModelLoadError(
            f"{path} is one of {count} parts, but is not named as such: NAME-00001-of-{count:05}"
            f"{SUFFIX}"
        )
    if metadata.integer("split.no", 0) != 0 or path.name != names[0]:
        raise ModelLoadError(f"{path} is not the first part; name {names[0]}")
    missing = [name for name in names if not path.with_name(name).is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelLoadError(
            f"{path} is one of {count} parts; not beside it: {', '.join(missing[:3])}{more}"
        )
    return [path.with_name(name) for name in names[1:]]


def _mapped(path: Path) -> tuple[Header, Bytes]:
    try:
        # copy-on-write: torch warns of memory that it must not write to
        data: Bytes = np.memmap(path, dtype=np.uint8, mode="c").view(np.ndarray)
    except FileNotFoundError as error:
        raise ModelLoadError(f"there is no file {path}") from error
    except ValueError as error:  # numpy refuses to map it
        raise ModelLoadError(f"{path} is empty") from error
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    try:
        return read_header(data), data
    except ModelLoadError as error:
        if reason := foreign(bytes(data[:64])):
            raise ModelLoadError(f"{path} {reason}") from error
        raise ModelLoadError(f"{path} is not a GGUF file that can be served: {error}") from error


def _tensors(header: Header, data: Bytes) -> dict[str, Tensor]:
    return {
        name: Tensor(info, data[info.start : info.start + info.nbytes])
        for name, info in header.tensors.items()
    }
