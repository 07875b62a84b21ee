"""RoleReader: the tensors of a spec by role, from a checkpoint's tensors by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch

from core.gguf.blocks import BlockMatrix
from core.gguf.values import values_of
from core.models.names import Names
from core.models.spec import Attention, DecoderSpec, Shape, Undescribed
from core.system.checkpoint_files import safetensors_header

Weight: TypeAlias = torch.Tensor | BlockMatrix
"""``[outputs, inputs]``. Blocks occur on CPUs only."""

Matrix: TypeAlias = tuple[Weight, torch.Tensor | None]
"""Weight and bias of a linear layer."""

Group: TypeAlias = Sequence[torch.Tensor] | BlockMatrix
"""The matrices of all experts; blocks have the rows of all of them, one after the other."""


class Tensors(Protocol):
    """The tensors of a checkpoint."""

    @property
    def names(self) -> Collection[str]: ...

    def get(self, name: str) -> Weight:
        """A tensor in its stored type; a view of a mapped file where that is possible."""


class SafetensorsFiles:
    """The tensors of safetensors files, which stay mapped while one of their views lives."""

    def __init__(self, paths: Iterable[Path]) -> None:
        from safetensors import safe_open  # noqa: PLC0415 - only to read weights

        self._files: dict[str, Any] = {}
        for path in paths:
            file: Any = safe_open(path, "pt")
            self._files |= dict.fromkeys(file.keys(), file)

    @property
    def names(self) -> Collection[str]:
        return self._files.keys()

    def get(self, name: str) -> torch.Tensor:
        """Return a view of the mapped file."""
        found: torch.Tensor = self._files[name].get_tensor(name)
        return found


def shapes_in(paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """The shapes in the headers of safetensors files. Raises ModelLoadError for a broken one."""
    return {
        name: tuple(info["shape"])
        for path in paths
        for name, info in safetensors_header(path).items()
    }


class MetaTensors:
    """Tensors of these shapes without values."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    @property
    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def get(self, name: str) -> torch.Tensor:
        """Return a tensor without values."""
        return torch.empty(self._shapes[name], device="meta")


class RoleReader:
    """Reads a checkpoint's tensors by role. Raises Undescribed if one is missing or another shape.

    ``layer`` is None for the tensors outside of layers. ``shape`` is that of the spec.
    """

    def __init__(self, tensors: Tensors, spec: DecoderSpec, names: Names) -> None:
        self._tensors, self._spec, self._names = tensors, spec, names
        self._left = set(tensors.names)
        embedding = names.of("embedding", None)[0]
        roots = [root for root in names.roots if root + embedding in self._left]
        if not roots:
            raise Undescribed(f"the checkpoint has no {embedding}")
        self._root = roots[0]

    def whole(self, role: str, layer: int | None, shape: Shape) -> torch.Tensor:
        """The tensor in float32, in contiguous memory of its own."""
        parts = [_values(part, shape) for part in self._parts(role, layer, shape)]
        rows = -1 if role.endswith("_bias") or len(shape) == 1 else -2
        for part in parts[1:]:
            same = list(parts[0].shape)
            same[rows] = part.shape[rows]
            self._check(role, layer, tuple(part.shape), tuple(same))
        found = torch.cat(parts, rows)
        found = found.flatten() if len(shape) == 1 else found
        self._check(role, layer, tuple(found.shape), shape)
        return found.contiguous()

    def matrices(self, role: str, layer: int | None, shape: Shape) -> list[Weight]:
        """Matrices whose rows follow each other, ``shape[0]`` together."""
        parts = [part for part in self._parts(role, layer, shape) if isinstance(part, Weight)]
        rows, columns = sum(len(part) for part in parts), {part.shape[1:] for part in parts}
        self._check(role, layer, (rows, *(n for each in columns for n in each)), shape)
        return parts

    def groups(self, role: str, layer: int, shape: Shape) -> list[Group]:
        """Matrices of ``shape[0]`` experts, whose rows follow each other, ``shape[1]`` together."""
        count = shape[0]
        parts: list[Group] = []
        rows, columns = 0, set[int]()
        for part in self._parts(role, layer, shape):
            if isinstance(part, BlockMatrix):
                if len(part) % count:
                    self._check(role, layer, part.shape, shape)
                parts.append(part)
                rows, columns = rows + len(part) // count, columns | {part.columns}
            else:
                if len(part) != count or part[0].dim() != 2:
                    self._check(role, layer, (len(part), *part[0].shape), shape)
                parts.append(list(part))
                rows += part[0].shape[0]
                columns |= {part[0].shape[1]}
        self._check(role, layer, (count, rows, *columns), shape)
        return parts

    def check_all_read(self) -> None:
        """Raise Undescribed if a tensor is left over that the family does not ignore."""
        ignored = self._names.ignored
        if self._spec.ties_head:
            ignored = (*ignored, *self._names.of("head", None))
        if left := sorted(name for name in self._left if not name.endswith(ignored)):
            raise Undescribed(f"the checkpoint has {left[0]}, which the spec has not")

    def _parts(
        self, role: str, layer: int | None, shape: Shape
    ) -> Iterator[Weight | list[torch.Tensor]]:
        """The tensors that have a role's rows, with outputs in rows."""
        layout = self._names.layouts.get(role.removesuffix("_bias"))
        is_bias = role.endswith("_bias")
        for name in self._full_names(role, layer):
            part = self._get(name, shape)
            if layout is None:
                yield part
                continue
            assert isinstance(part, torch.Tensor), name
            if part.dim() != len(shape):
                self._check(role, layer, tuple(part.shape), shape)
            if layout == "by_head":
                assert layer is not None
                mixer = self._spec.layers[layer].mixer
                assert isinstance(mixer, Attention)
                self._check(role, layer, part.shape[:1], shape[:1])
                heads = part.reshape(mixer.num_heads, 3, mixer.head_dim, *part.shape[1:])
                yield heads.transpose(0, 1).flatten(0, 2)
                continue
            part = part if is_bias else part.transpose(-1, -2)
            if layout == "interleaved":
                yield part[:, 0::2]
                part = part[:, 1::2]
            yield part

    def _full_names(self, role: str, layer: int | None) -> list[str]:
        root = "" if role.startswith("head") else self._root
        return [root + name for name in self._names.of(role, layer)]

    def _get(self, name: str, shape: Shape) -> Weight | list[torch.Tensor]:
        """A tensor, or as many numbered ones as ``shape`` has rows."""
        numbered = [name.format(e=e) for e in range(shape[0])] if "{e}" in name else [name]
        if missing := [each for each in numbered if each not in self._tensors.names]:
            raise Undescribed(f"the checkpoint has no {missing[0]}")
        self._left.difference_update(numbered)
        found = [self._tensors.get(each) for each in numbered]
        dims = len(shape) - ("{e}" in name)
        for each, tensor in zip(numbered, found, strict=True):
            if isinstance(tensor, torch.Tensor):
                is_row = tensor.dim() == 1 and shape[0] == 1
                is_vector = tensor.dim() > 0 and dims == 1
                is_right = tensor.dim() == dims or is_row or is_vector
                if not is_right or tensor.shape != found[0].shape:
                    raise Undescribed(f"{each} has shape {list(tensor.shape)}")
                if not tensor.is_floating_point():
                    raise Undescribed(f"{each} has values of type {tensor.dtype}")
        if "{e}" not in name:
            return found[0]
        return [each for each in found if isinstance(each, torch.Tensor)]

    def _check(self, role: str, layer: int | None, found: Shape, shape: Shape) -> None:
        if found != shape:
            name = self._full_names(role, layer)[0]
            raise Undescribed(f"{name} has shape {list(found)}, not {list(shape)}")


def _values(part: Weight | list[torch.Tensor], shape: Shape) -> torch.Tensor:
    """A tensor of ``len(shape)`` dimensions in float32; a vector may be a matrix of one row."""
    if isinstance(part, BlockMatrix):
        values = values_of(part)
        return values if len(shape) < 3 else values.view(shape[0], -1, part.columns)
    values = (part if isinstance(part, torch.Tensor) else torch.stack(part)).float()
    return values[None] if values.dim() == 1 < len(shape) else values
